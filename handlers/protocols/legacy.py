"""The old example's ways: a bare text, `{"text", "target"}` and `{"question", "context"}`."""

from __future__ import annotations

from typing import Any

from handlers.errors import BadRequest
from handlers.protocols.base import BaseProtocol
from handlers.requests import Request
from handlers.texts import kind_of

SHAPES = 'a text, {"inputs": …}, {"text": …} or {"question": …, "context": …}'


class Protocol(BaseProtocol):
    """Bodies of TorchServe's own Hugging Face example; `target` is for explanations only."""

    rank = 9

    def recognises(self, content: Any) -> bool:
        return True

    def read(self, content: Any, *, explain: bool) -> list[Request]:
        if isinstance(content, (str, list)):
            return self.requests(content, {})
        if not isinstance(content, dict):
            raise BadRequest(f"The body must be {SHAPES}, and is {kind_of(content)}.")
        inputs = {key: value for key, value in content.items() if key != "target"}
        target = {"target": content["target"]} if explain and "target" in content else {}
        return [Request(_inputs(inputs), target)]


def _inputs(given: dict[str, Any]) -> Any:
    """Return what the body asks about, or say which keys it should have."""
    keys = set(given)
    if keys == {"text"}:
        return given["text"]
    if keys == {"text", "text_pair"} or keys & {"question", "context"}:
        return given
    found = f"the keys {', '.join(sorted(map(str, keys)))}" if keys else "no keys"
    raise BadRequest(f"The body has {found}; send {SHAPES}.")
