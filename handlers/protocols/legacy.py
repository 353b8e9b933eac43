"""TorchServe's own Hugging Face example: a text, `{"text", "target"}`, `{"question", "context"}`.

With `responses: legacy` in the YAML the responses have the shapes of that example as well: the
label, answer or text alone, pairs of token and label, and an explanation with its keys only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import BadRequest, RequestError
from ..http.request import HttpRequest
from ..http.response import HttpResponse
from ..types.model_info import ModelInfo
from ..types.parameters import json_type
from ..types.request import Request
from .base import BaseProtocol, ParsedRequest
from .items import forms_of, read_item

TEXT = "text/plain; charset=utf-8"


class Protocol(BaseProtocol):
    """Bodies of TorchServe's own Hugging Face example; `target` is for explanations only."""

    def __init__(self, model: ModelInfo) -> None:
        super().__init__(model)
        self._legacy = model.task.wire.legacy_response if model.settings.responses else None

    def recognises(self, http_request: HttpRequest) -> bool:
        return True

    def parse(self, http_request: HttpRequest) -> ParsedRequest:
        content, explains = http_request.content, http_request.explains
        parameters = self._legacy.parameters if self._legacy and not explains else {}
        if isinstance(content, (str, list, bytes)):
            return ParsedRequest(http_request, self.requests(content, parameters))
        if not isinstance(content, dict):
            forms = forms_of(self.model.task.wire.input_columns)
            raise BadRequest(f"The body must be {forms}, and is {json_type(content)}.")
        columns = self.model.task.wire.input_columns
        if self.model.task.generation.texts and type(content.get("target")) is int:
            # That example's bodies have the number of a class, which a generated text has not.
            content = {key: value for key, value in content.items() if key != "target"}
        inputs, own = read_item(content, columns, "body", explains=explains)
        return ParsedRequest(http_request, [Request(inputs, {**parameters, **own})])

    def write(self, parsed: ParsedRequest, outcomes: Sequence[Any]) -> HttpResponse:
        results = [self._result(outcome, parsed.http_request.explains) for outcome in outcomes]
        response = super().write(parsed, results)
        if not parsed.requests[0].is_batch_item and isinstance(results[0], str):
            return HttpResponse(results[0].encode(), content_type=TEXT)
        return response

    def response_body(self, parsed: ParsedRequest, results: Sequence[Any]) -> Any:
        return list(results) if parsed.requests[0].is_batch_item else results[0]

    def _result(self, outcome: Any, explains: bool) -> Any:
        if self._legacy is None or isinstance(outcome, RequestError):
            return outcome
        if explains:
            keys = self.model.legacy_explanation_keys
            return {key: outcome[key] for key in keys if key in outcome}
        return self._legacy.convert(outcome)
