"""A form for a browser: a request without a body to the model's own path, which accepts HTML.

The form sends its fields to the same path. Its second button adds the field `path`, with which
TorchServe's workers read a prediction as an explanation.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..http.html import HTML, prefers_page, templates
from ..http.request import HttpRequest
from ..http.response import HttpResponse
from ..types.model_info import FILE_TYPES
from .base import INPUTS, NO_BODY, BaseProtocol, ParsedRequest

_TEMPLATES = templates(Path(__file__).parent)


class Field(NamedTuple):
    """A field of the form.

    Attributes:
        name: its name in the body.
        label: what a person reads.
        value: the value of the example.
        file_type: the content type of a file; empty for a text.
    """

    name: str
    label: str
    value: str
    file_type: str = ""


class Protocol(BaseProtocol):
    """Shows a form with the fields of a request, and the example of the mode in them."""

    body_keys = NO_BODY

    def recognises(self, http_request: HttpRequest) -> bool:
        if http_request.path or http_request.has_body:
            return False
        return prefers_page(http_request.header("accept"))

    def parse(self, http_request: HttpRequest) -> ParsedRequest:
        return ParsedRequest(http_request)

    def response(self, parsed: ParsedRequest, results: Sequence[Any]) -> HttpResponse:
        example = self.model.task.wire.example
        page = _TEMPLATES.get_template("form.html.j2").render(
            model=self.model,
            mode=self.model.mode.replace("_", " "),
            fields=list(self._fields(example[INPUTS])),
            parameters=json.dumps(example.get("parameters", {})),
        )
        return HttpResponse(page.encode("utf-8", "replace"), content_type=HTML)

    def _fields(self, inputs: Any) -> Iterator[Field]:
        """Yield a field for each column, or one of JSON for columns that are no texts and files."""
        if not isinstance(inputs, Mapping):
            (column,) = self.model.task.wire.input_columns[0]
            yield from _fields_of(INPUTS, column, inputs)
        elif all(map(_is_text, inputs.values())):
            for column, value in inputs.items():
                yield from _fields_of(column, column, value)
        else:
            yield Field(INPUTS, "inputs, as JSON", json.dumps(inputs, ensure_ascii=False))


def _fields_of(name: str, column: str, value: Any) -> Iterator[Field]:
    label, file_type = column.replace("_", " "), FILE_TYPES.get((column,), "")
    for each in [value] if isinstance(value, str) else value:
        yield Field(name, label, "" if file_type else each, file_type)


def _is_text(value: Any) -> bool:
    """Return whether a value is a text, or a list of texts."""
    texts = value if isinstance(value, list) else [value]
    return all(isinstance(each, str) for each in texts)
