"""The old example's ways: a bare text, `{"text", "target"}` and `{"question", "context"}`.

With `responses: legacy` in the YAML their answers have the old example's shapes as well: the bare
label, answer or text, pairs of token and label, and of an explanation no other keys than the old.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from handlers.answer import Answer
from handlers.bodies import Post
from handlers.description import Description
from handlers.errors import BadRequest, RequestError
from handlers.old_answers import OLD_ANSWERS, old_explanation
from handlers.protocols._items import SHAPES, read_item
from handlers.protocols.base import RowProtocol
from handlers.requests import Request
from handlers.texts import kind_of

TEXT = "text/plain; charset=utf-8"


class Protocol(RowProtocol):
    """Bodies of TorchServe's own Hugging Face example; `target` is for explanations only."""

    rank = 90

    def __init__(self, model: Description) -> None:
        super().__init__(model)
        self._old = OLD_ANSWERS[model.mode] if model.settings.responses else None

    def recognises(self, post: Post) -> bool:
        return True

    def read(self, post: Post) -> list[Request]:
        content = post.content
        parameters = self._old.parameters if self._old and not post.explains else {}
        if isinstance(content, (str, list)):
            return self.requests(content, parameters)
        if not isinstance(content, dict):
            raise BadRequest(f"The body must be {SHAPES}, and is {kind_of(content)}.")
        inputs, own = read_item(content, self.model.mode, "body", explains=post.explains)
        return [Request(inputs, {**parameters, **own})]

    def write(self, post: Post, requests: Sequence[Request], outcomes: Sequence[Any]) -> Answer:
        told = [self._told(post, outcome) for outcome in outcomes]
        answer = super().write(post, requests, told)
        if requests[0].alone and isinstance(told[0], str):
            return Answer(told[0].encode(), content_type=TEXT)
        return answer

    def reply(self, post: Post, requests: Sequence[Request], results: Sequence[Any]) -> Any:
        return results[0] if requests[0].alone else list(results)

    def _told(self, post: Post, outcome: Any) -> Any:
        if self._old is None or isinstance(outcome, RequestError):
            return outcome
        return old_explanation(outcome) if post.explains else self._old.of(outcome)
