"""The Hugging Face way: `{"inputs": …, "parameters": {…}}`; a list of inputs gets a list back."""

from __future__ import annotations

from typing import Any

from handlers.errors import BadRequest
from handlers.protocols.base import BaseProtocol
from handlers.requests import Request
from handlers.texts import kind_of
from handlers.words import nearest

KEYS = ["inputs", "parameters", "options"]


class Protocol(BaseProtocol):
    """Bodies of the Hugging Face inference toolkit; `options` are for its hub and are left."""

    rank = 1

    def recognises(self, content: Any) -> bool:
        return isinstance(content, dict) and bool({"inputs", "parameters"} & content.keys())

    def read(self, content: Any, *, explain: bool) -> list[Request]:
        if unknown := sorted(str(key) for key in content.keys() - set(KEYS)):
            raise BadRequest(
                f"The body has the unknown key {unknown[0]!r}; {nearest(unknown[0], KEYS)}"
            )
        if "inputs" not in content:
            raise BadRequest("The body has no inputs; send them under that key.")
        parameters = content.get("parameters") or {}
        if not isinstance(parameters, dict):
            raise BadRequest(f"parameters must be an object, and is {kind_of(parameters)}.")
        return self.requests(content["inputs"], parameters)
