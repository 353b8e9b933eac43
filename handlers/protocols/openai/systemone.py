"""TypeSafe's `systemone`: questions with names about a state, to the probability of each answer.

    {"state": "a text", "questions": {"urgent": {"type": "noul", "instructions": "It is urgent."}}}
    -> {"answers": {"urgent": {"type": "noul", "noul": 0.9}}, "usage": …}

A state is a text, or JSON that the model reads as text. Errors are OpenAI's. The format has no
answer for a question that the model cannot answer, which is an error of the request.

https://docs.typesafe.ai/api
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SkipValidation

from ...errors import BadRequest
from ...http.response import HttpResponse, encode_json
from ...types.decisions import Kind, Option, Question
from ...types.parameters import check_text, json_type
from ..base import KeyTable, ParsedRequest, Route, check_count, refused, tokens_read
from .bodies import BOOKKEEPING, SCHEDULING
from .decisions import DecisionEndpoint, confidence, examples_by_nli, mean_level, text_of_json
from .endpoint import ExplainedBody, served_name
from .types import OpenAIError, SystemOneAnswer, SystemOneDecision

Json = str | dict[str, Any] | list[Any]
KINDS: Mapping[str, Kind] = {"noul": "predicate", "choice": "choice", "score": "score"}
OUTCOMES = ("true", "false")


class SystemOneQuestion(BaseModel):
    """A question.

    `criteria` are the options of a choice with what each means, or null; the levels of a score,
    lowest first; or what `true` and `false` of a noul mean.
    """

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    type: Literal["noul", "choice", "score"]
    instructions: SkipValidation[Json | None] = None
    criteria: SkipValidation[dict[str, Json | None] | list[Json] | None] = None

    def options(self, name: str) -> Sequence[Option]:
        """Return the options.

        Args:
            name: the name of the question in errors.

        Raises:
            BadRequest: the criteria have another type.
        """
        given: Any = self.criteria
        expected: Any = list if self.type == "score" else dict
        if given is None and self.type == "noul":
            given = {}
        if not isinstance(given, expected):
            kind = "a list of levels" if expected is list else "an object"
            raise BadRequest(f"{name}.criteria must be {kind}, and is {json_type(given)}.")
        if self.type == "score":
            return [Option(text_of_json(each)) for each in given]
        if self.type == "choice":
            return [Option(key, _described(value)) for key, value in given.items()]
        if other := next((key for key in given if key not in OUTCOMES), None):
            raise BadRequest(f"{name}.criteria has {other!r}; a noul has true and false only.")
        return [Option(outcome, _described(given.get(outcome))) for outcome in OUTCOMES]


class SystemOneBody(ExplainedBody):
    """The body of `systemone`: a state, and questions about it by their names."""

    state: str | dict[str, Any] | list[str | dict[str, Any] | list[Any]]
    questions: Annotated[dict[str, SystemOneQuestion], Field(fail_fast=True)]


class SystemOne(DecisionEndpoint[SystemOneBody]):
    """`systemone`: the answer of each question, by its name."""

    route = Route(
        "v1/systemone",
        name="decideBySystemOne",
        server="TypeSafe",
        summary="Return the probability of each answer of some questions with names.",
        response=SystemOneDecision,
        error=OpenAIError,
        abilities=("decides",),
        body=SystemOneBody,
        is_explained=True,
        keys=KeyTable.of(
            SystemOneBody,
            BOOKKEEPING,
            SCHEDULING,
            refused(
                images=[],
                assets=[],
                audio=[],
                videos=[],
                instructions=[],
                decision_template=[],
                chat_template_kwargs=[],
                seed=[],
            ),
        ),
        examples=lambda sample: examples_by_nli(
            sample,
            state="I was charged twice.",
            questions={"complains": {"type": "noul", "instructions": "The customer complains."}},
        ),
    )
    inputs_key = "state"
    refuses_alone = False

    def questions(self, body: SystemOneBody, content: Mapping[str, Any]) -> dict[str, Question]:
        check_count(len(body.questions), "questions", self.model.limits.max_rows)
        state = check_text(text_of_json(content["state"]), "state", self.max_characters)
        found = {}
        for name, each in zip(self.names(body), body.questions.values(), strict=True):
            options = each.options(name)
            # The criteria of a noul may say all that the question is about.
            says_all = each.type == "noul" and each.instructions is None and options[0].description
            instructions = says_all or text_of_json(each.instructions or "")
            found[name] = Question(KINDS[each.type], state, instructions, options)
        return found

    def names(self, body: SystemOneBody) -> list[str]:
        return [f"questions.{name}" for name in body.questions]

    def write(self, parsed: ParsedRequest, results: Sequence[Any]) -> HttpResponse:
        body: SystemOneBody = parsed.context.body
        explains = parsed.http_request.explains
        pairs = zip(body.questions.items(), results, strict=True)
        response: SystemOneDecision = {
            "model": served_name(self.model, body.model),
            "answers": {
                name: _answer(question, result, name, explains=explains)
                for (name, question), result in pairs
            },
        }
        if not explains:
            tokens = tokens_read(parsed.requests)
            response["usage"] = {"input_tokens": tokens, "output_tokens": 0}
        return HttpResponse(encode_json(response))


def _described(value: Json | None) -> str | None:
    return None if value is None else text_of_json(value)


def _answer(
    question: SystemOneQuestion, result: Any, name: str, *, explains: bool
) -> SystemOneAnswer:
    if explains:
        return {"type": question.type, "explanation": result}
    if question.type == "noul":
        return {"type": "noul", "noul": result[0]}
    names = [each.name for each in question.options(name)]
    if question.type == "choice":
        return {
            "type": "choice",
            "choice": names[result.index(max(result))],
            "probabilities": dict(zip(names, result, strict=True)),
            "confidence": confidence(result),
        }
    levels = [str(number) for number in range(len(names))]
    return {
        "type": "score",
        "score": mean_level(result),
        "legend": dict(zip(levels, question.criteria or (), strict=True)),
        "probabilities": dict(zip(levels, result, strict=True)),
        "confidence": confidence(result),
    }
