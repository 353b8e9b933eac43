"""Texts with the spans that a model finds replaced by their types, `redact` below a model's path:

    {"inputs": "Write to ada@example.org.", "parameters": {"labels": ["email address"]}}
    -> {"text": "Write to [EMAIL_ADDRESS].",
        "spans": [{"entity_group": "email address", "score": 0.98, "start": 9, "end": 24,
                   "replacement": "[EMAIL_ADDRESS]"}]}

Inputs may be an object as the mode takes it, with the text and the labels. A list of inputs gets a
list of results. `start` and `end` count characters of the text that was
sent. A text that is too long for a row is read in windows, so that all of it is searched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NotRequired

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from ..errors import BadRequest, RequestError, WholeErrorBody
from ..http.request import HttpRequest
from ..types.parameters import json_type
from ..types.request import Request
from .base import NO_BODY, BaseProtocol, KeyTable, ParsedRequest, Route
from .items import check_keys, read_parameters

REDACT = "redact"
KEYS = ["inputs", "parameters"]
# What is no letter or digit in the name of a type.
BETWEEN_WORDS = re.compile(r"[\W_]+")


class RedactedInputs(TypedDict):
    """A text, and the labels to find, for modes that read labels."""

    text: str
    labels: NotRequired[str | list[str] | dict[str, str]]


@with_config(ConfigDict(extra="forbid"))
class RedactBody(TypedDict):
    """The body: a text or several, and parameters of the mode."""

    inputs: str | RedactedInputs | list[str | RedactedInputs]
    parameters: NotRequired[dict[str, Any] | None]


class RedactedSpan(TypedDict):
    """A span of the text that was sent, and what stands in its place."""

    entity_group: str
    score: float
    start: int
    end: int
    replacement: str


class RedactedText(TypedDict):
    """A text with its spans replaced, and these spans."""

    text: str
    spans: list[RedactedSpan]


class Protocol(BaseProtocol):
    """Replaces the spans that a model finds by their types."""

    body_keys = NO_BODY
    routes = (
        Route(
            REDACT,
            name="redactTexts",
            server="this kit",
            summary="Replace the spans that the model finds by their types.",
            response=RedactedText | list[RedactedText],
            error=WholeErrorBody,
            abilities=("redacts",),
            body=RedactBody,
            keys=KeyTable.of(RedactBody),
            examples=lambda sample: {"one": _example(sample)},
        ),
    )

    def parse(self, http_request: HttpRequest) -> ParsedRequest:
        (route,) = self.routes
        http_request = route.check(http_request, self.model)
        content = http_request.content
        if not isinstance(content, dict):
            raise BadRequest(f"The body must be an object, and is {json_type(content)}.")
        check_keys(content, KEYS, "The body")
        inputs = content.get("inputs")
        is_list = isinstance(inputs, list)
        texts: list[Any] = inputs if isinstance(inputs, list) else [inputs]
        self.check_count(len(texts), "inputs")
        parameters = {**(self.model.task.wire.redaction or {}), **read_parameters(content)}
        items = [Request(text, parameters, is_batch_item=is_list) for text in texts]
        return ParsedRequest(http_request, items, context=is_list)

    def write(self, parsed: ParsedRequest, outcomes: Sequence[Any]) -> Any:
        found = [
            outcome if isinstance(outcome, RequestError) else redacted(_text(request), outcome)
            for request, outcome in zip(parsed.requests, outcomes, strict=True)
        ]
        return super().write(parsed, found)

    def response_body(self, parsed: ParsedRequest, results: Sequence[Any]) -> Any:
        return list(results) if parsed.context else results[0]


def _text(request: Request) -> str:
    """Return the text of a request that has an answer; inputs may also have the labels."""
    inputs = request.inputs
    return str(inputs["text"] if isinstance(inputs, dict) else inputs)


def redacted(text: str, entities: Sequence[Mapping[str, Any]]) -> RedactedText:
    """Return a text with its entities replaced by their types."""
    spans = list(_spans(entities))
    parts, end = list[str](), 0
    for span in spans:
        parts += [text[end : span["start"]], span["replacement"]]
        end = span["end"]
    return {"text": "".join([*parts, text[end:]]), "spans": spans}


def replacement_of(kind: str) -> str:
    """Return what stands in the place of a span: its type in capital letters, in brackets."""
    return f"[{BETWEEN_WORDS.sub('_', kind).strip('_').upper() or 'REDACTED'}]"


def _spans(entities: Sequence[Mapping[str, Any]]) -> Iterator[RedactedSpan]:
    """Yield the spans of entities, in order; one that overlaps with others is a part of theirs.

    What is left of it behind them has its own type.
    """
    end = 0
    for entity in sorted(entities, key=lambda each: (each["start"], -each["end"])):
        start = max(end, entity["start"])
        if start >= entity["end"]:
            continue
        end = entity["end"]
        kind = str(entity.get("entity_group", entity.get("entity")))
        yield {
            "entity_group": kind,
            "score": entity["score"],
            "start": start,
            "end": end,
            "replacement": replacement_of(kind),
        }


def _example(sample: Mapping[str, Any]) -> dict[str, Any]:
    """Return a body of the sample of a mode, whose inputs may have the labels."""
    inputs = sample["inputs"]
    if not isinstance(inputs, dict):
        return {"inputs": inputs}
    others = {name: value for name, value in inputs.items() if name != "text"}
    return {"inputs": inputs["text"], "parameters": others}
