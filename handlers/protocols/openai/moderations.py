"""The endpoint `moderations`: texts, to whether each belongs to one of some categories.

    {"input": ["a text"]}
    -> {"results": [{"flagged": true, "categories": {"insult": true, "threat": false},
        "category_scores": {"insult": 0.8, "threat": 0.1}, …}], …}

Sent to /explanations, each text has the words that led to its likeliest category, or to the label
or category that `parameters.target` names.

The categories of a classifier are names for its labels: `moderation` of the YAML has the category
of each label that is not harmless. The score of a category is the highest score of its labels. The
categories of a guard model are in the table of its family.

https://platform.openai.com/docs/api-reference/moderations
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, SkipValidation
from typing_extensions import TypedDict

from ...errors import Unprocessable
from ...http.request import HttpRequest
from ...http.response import HttpResponse, encode_json
from ...types.decisions import ModeratedText
from ...types.parameters import check_text
from ...types.request import Request
from ..base import KeyTable, ParsedRequest, Route, check_count, ignored
from .bodies import BOOKKEEPING
from .endpoint import Call, Endpoint, ExplainedBody, served_name
from .types import Moderation, ModerationResponse, OpenAIError

THRESHOLD = 0.5
NO_TABLE = (
    "This model has no categories of moderation: its labels exclude one another, and which of them"
    " are harmful is not known. Write them in handler.moderation of its YAML."
)
NO_GUARD = (
    "This model of text_generation has no categories of moderation: its chat template shows no"
    " guard model. Name its family in handler.guard_family of its YAML."
)


class TextInputPart(TypedDict):
    """A part of an input with text."""

    type: Literal["text"]
    text: str


class ModerationBody(ExplainedBody):
    """The body of `moderations`: a text, texts, or the parts of one input."""

    input: SkipValidation[
        str
        | Annotated[list[str], Field(min_length=1)]
        | Annotated[list[TextInputPart], Field(min_length=1)]
    ]


class Moderations(Endpoint[ModerationBody]):
    """`moderations`: the categories of each text."""

    route = Route(
        "v1/moderations",
        name="moderate",
        server="OpenAI",
        summary="Return the categories of harm of each text.",
        response=ModerationResponse,
        error=OpenAIError,
        abilities=("moderates",),
        body=ModerationBody,
        keys=KeyTable.of(ModerationBody, BOOKKEEPING, ignored("request_id")),
        is_explained=True,
        description="For models with `handler.moderation`, multi-label models and guard models.",
    )
    inputs_key = "input"

    def parsed_request(self, http_request: HttpRequest, body: ModerationBody) -> ParsedRequest:
        parameters = body.explanation_parameters(http_request)
        classifies = self.model.task.has_labels
        if not self.model.categories:
            raise Unprocessable(NO_TABLE if classifies else NO_GUARD)
        texts = self._texts(body.input)
        if classifies:
            # The probabilities, whatever the YAML sets for other requests.
            parameters |= {"top_k": None, "function_to_apply": None}
        requests = [
            Request(text if classifies else ModeratedText(text), parameters, is_batch_item=True)
            for text in texts
        ]
        return ParsedRequest(http_request, requests, Call(self, body))

    def write(self, parsed: ParsedRequest, results: Sequence[Any]) -> HttpResponse:
        explains = parsed.http_request.explains
        response: ModerationResponse = {
            "id": f"modr-{uuid.uuid4().hex}",
            "model": served_name(self.model, parsed.context.body.model),
            "results": [
                {"explanation": each} if explains else self._moderation(each) for each in results
            ],
        }
        return HttpResponse(encode_json(response))

    def _texts(self, given: Any) -> list[str]:
        limits = self.model.limits
        if not isinstance(given, list):
            return [check_text(given, "input", limits.max_characters)]
        check_count(len(given), "input", limits.max_rows)
        if all(isinstance(each, dict) for each in given):
            return [check_text(_text_of(given), "input", limits.max_characters)]
        return [
            check_text(text, f"input[{number}]", limits.max_characters)
            for number, text in enumerate(given)
        ]

    def _moderation(self, labels: Sequence[Mapping[str, Any]]) -> Moderation:
        scores = dict.fromkeys(self.model.categories.values(), 0.0)
        for each in labels:
            category = self.model.categories.get(each["label"])
            if category is not None:
                scores[category] = max(scores[category], each["score"])
        thresholds = self.model.settings.moderation_thresholds
        flags = {name: score >= thresholds.get(name, THRESHOLD) for name, score in scores.items()}
        return {
            "flagged": any(flags.values()),
            "categories": flags,
            "category_scores": scores,
            "category_applied_input_types": {name: ["text"] for name in scores},
        }


def _text_of(parts: Sequence[Any]) -> str:
    """Return the text of the parts of one input.

    Raises:
        Unprocessable: one is an image.
    """
    for number, part in enumerate(parts):
        if part.get("type") != "text" or not isinstance(part.get("text"), str):
            raise Unprocessable(
                f"input[{number}] is not a text, and this model reads texts alone; send"
                ' {"type": "text", "text": …}.'
            )
    return "\n".join(part["text"] for part in parts)
