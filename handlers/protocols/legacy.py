"""The old example's ways: a bare text, `{"text", "target"}` and `{"question", "context"}`.

With `responses: legacy` in the YAML their answers have the old example's shapes as well: the bare
label, answer or text, pairs of token and label, and of an explanation no other keys than the old.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from handlers.errors import BadRequest, RequestError
from handlers.http.request import HttpRequest
from handlers.http.response import HttpResponse
from handlers.protocols.base import RowProtocol
from handlers.protocols.items import SHAPES, read_item
from handlers.schemas.legacy_responses import LEGACY_RESPONSES, legacy_explanation
from handlers.schemas.model_info import ModelInfo
from handlers.schemas.request import Request
from handlers.schemas.text_checks import json_type

TEXT = "text/plain; charset=utf-8"


class Protocol(RowProtocol):
    """Bodies of TorchServe's own Hugging Face example; `target` is for explanations only."""

    def __init__(self, model: ModelInfo) -> None:
        super().__init__(model)
        self._old = LEGACY_RESPONSES[model.mode] if model.settings.responses else None

    def recognises(self, http_request: HttpRequest) -> bool:
        return True

    def read(self, http_request: HttpRequest) -> list[Request]:
        content = http_request.content
        parameters = self._old.parameters if self._old and not http_request.explains else {}
        if isinstance(content, (str, list)):
            return self.requests(content, parameters)
        if not isinstance(content, dict):
            raise BadRequest(f"The body must be {SHAPES}, and is {json_type(content)}.")
        inputs, own = read_item(content, self.model.mode, "body", explains=http_request.explains)
        return [Request(inputs, {**parameters, **own})]

    def write(
        self, http_request: HttpRequest, requests: Sequence[Request], outcomes: Sequence[Any]
    ) -> HttpResponse:
        told = [self._told(http_request, outcome) for outcome in outcomes]
        answer = super().write(http_request, requests, told)
        if requests[0].alone and isinstance(told[0], str):
            return HttpResponse(told[0].encode(), content_type=TEXT)
        return answer

    def reply(
        self, http_request: HttpRequest, requests: Sequence[Request], results: Sequence[Any]
    ) -> Any:
        return results[0] if requests[0].alone else list(results)

    def _told(self, http_request: HttpRequest, outcome: Any) -> Any:
        if self._old is None or isinstance(outcome, RequestError):
            return outcome
        return legacy_explanation(outcome) if http_request.explains else self._old.of(outcome)
