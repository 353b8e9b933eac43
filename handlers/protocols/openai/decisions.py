"""Endpoints of questions about an input, to the probability of each answer.

OpenAI's `decisions`:

    {"input": "a text", "questions": [{"type": "predicate", "instructions": "It is urgent."}]}
    -> {"answers": [{"type": "predicate", "name": null, "probability": 0.9}], "usage": …}

Each question is answered by itself. Below `/explanations` the same body gets the words that led to
each answer; `parameters` of the body has the parameters of the explanations.

https://platform.openai.com/docs/api-reference/decisions

TypeSafe's `systemone`, of questions with names about a state:

    {"state": "a text", "questions": {"urgent": {"type": "noul", "instructions": "It is urgent."}}}
    -> {"answers": {"urgent": {"type": "noul", "noul": 0.9}}, "usage": …}

A state is a text, or JSON that the model reads as text. Errors are OpenAI's. The format has no
answer for a question that the model cannot answer, which is an error of the request.

https://docs.typesafe.ai/api
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, SkipValidation

from ...config.messages import quote
from ...errors import BadRequest, RequestError, Unprocessable
from ...http.request import HttpRequest
from ...http.response import HttpResponse, encode_json
from ...types.decisions import PREDICATE, Kind, Option, Question
from ...types.parameters import check_text, json_type
from ...types.request import Request, TokenCount
from ..base import ITEM_ERRORS, KeyTable, ParsedRequest, Route, check_count, refused, tokens_read
from .bodies import BOOKKEEPING, SCHEDULING
from .endpoint import Call, Endpoint, ExplainedBody, adapter_parameters, served_name
from .types import (
    ChoiceAnswer,
    Decision,
    DecisionAnswer,
    DecisionUsage,
    OpenAIError,
    PredicateAnswer,
    ScoreAnswer,
    SystemOneAnswer,
    SystemOneDecision,
)


def examples_by_nli(sample: Mapping[str, Any], **body: Any) -> Mapping[str, Any]:
    """Return a body as the example of models whose sample has labels; others need their own."""
    return {"one": body} if isinstance(sample["inputs"], dict) else {}


BodyT = TypeVar("BodyT", bound=ExplainedBody)


class DecisionEndpoint(Endpoint[BodyT]):
    """An endpoint that asks questions, of which each is a request of the engine."""

    inputs_key = "input"
    refuses_alone: ClassVar[bool]

    def parsed_request(self, http_request: HttpRequest, body: BodyT) -> ParsedRequest:
        parameters = body.explanation_parameters(http_request)
        questions = self.questions(body, http_request.content)
        for name, question in questions.items():
            question.check(name)
            # The options of a choice, and the levels of a score, may say what is asked.
            if question.instructions or question.kind == "predicate":
                check_text(question.instructions, f"{name}.instructions", self.max_characters)
        parameters |= adapter_parameters(self.model, body.model)
        requests = [
            Request(question, parameters, is_batch_item=True, token_count=TokenCount())
            for question in questions.values()
        ]
        return ParsedRequest(http_request, requests, Call(self, body))

    @abstractmethod
    def questions(self, body: BodyT, content: Mapping[str, Any]) -> dict[str, Question]:
        """Return the questions by their names in errors.

        Args:
            content: the body as it was sent.

        Raises:
            RequestError: they cannot be understood.
        """

    @abstractmethod
    def names(self, body: BodyT) -> list[str]:
        """Return the names of the questions in errors."""

    def failure(self, parsed: ParsedRequest, outcomes: Sequence[Any]) -> RequestError | None:
        """Return the error of the request as a whole.

        It is None where some questions have answers, and the others are refused one by one.
        """
        errors = {at: each for at, each in enumerate(outcomes) if isinstance(each, RequestError)}
        refused = [each for each in errors.values() if isinstance(each, Unprocessable)]
        if not errors or (self.refuses_alone and len(refused) == len(errors) < len(outcomes)):
            return None
        fatal = {at: each for at, each in errors.items() if not isinstance(each, Unprocessable)}
        at, error = next(iter((fatal or errors).items()))
        if len(outcomes) == 1 or not isinstance(error, ITEM_ERRORS):
            return error
        return type(error)(f"{self.names(parsed.context.body)[at]}: {error}")

    @property
    def max_characters(self) -> int:
        """The maximum number of characters of a text."""
        return self.model.limits.max_characters


class QuestionPart(BaseModel):
    """Base of the parts of a question."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    description: str | None = None


class ChoiceOption(QuestionPart):
    """An option of a choice."""

    value: str | bool

    @property
    def option(self) -> Option:
        """The option, whose name is a text."""
        return Option(
            self.value if isinstance(self.value, str) else str(self.value).lower(), self.description
        )


class ScoreLevel(QuestionPart):
    """A level of a scale."""

    label: str

    @property
    def option(self) -> Option:
        """The option."""
        return Option(self.label, self.description)


class OpenAIQuestion(BaseModel):
    """A question; `choices` are for the type `choice`, and `levels` for the type `score`."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    type: Kind
    instructions: SkipValidation[str | list[dict[str, Any]]]
    name: str | None = None
    choices: list[ChoiceOption] | None = None
    levels: list[ScoreLevel] | None = None

    def options(self, name: str) -> Sequence[Option]:
        """Return the options.

        Args:
            name: the name of the question in errors.

        Raises:
            BadRequest: there are none.
        """
        if self.type == "predicate":
            return PREDICATE
        key = "choices" if self.type == "choice" else "levels"
        given = getattr(self, key)
        if given is None:
            raise BadRequest(f"{name}.{key} is missing; a {self.type} needs it.")
        return [each.option for each in given]


class DecisionsBody(ExplainedBody):
    """The body of `decisions`: a text or a conversation, and questions about it."""

    input: SkipValidation[str | Annotated[list[dict[str, Any]], Field(min_length=1)]]
    questions: Annotated[list[OpenAIQuestion], Field(fail_fast=True)]


class Decisions(DecisionEndpoint[DecisionsBody]):
    """`decisions`: the answer of each question, in their order."""

    route = Route(
        "v1/decisions",
        name="decide",
        server="OpenAI",
        summary="Return the probability of each answer of some questions.",
        response=Decision,
        error=OpenAIError,
        abilities=("decides",),
        body=DecisionsBody,
        keys=KeyTable.of(DecisionsBody, BOOKKEEPING, SCHEDULING),
        is_explained=True,
        examples=lambda sample: examples_by_nli(
            sample,
            input="I was charged twice.",
            questions=[{"type": "predicate", "instructions": "The customer complains."}],
        ),
    )
    refuses_alone = True

    def questions(self, body: DecisionsBody, content: Mapping[str, Any]) -> dict[str, Question]:
        check_count(len(body.questions), "questions", self.model.limits.max_rows)
        text = check_text(text_of_input(body.input), "input", self.max_characters)
        found = {}
        for name, each in zip(self.names(body), body.questions, strict=True):
            instructions = text_of_content(each.instructions, f"{name}.instructions")
            found[name] = Question(each.type, text, instructions, each.options(name))
        return found

    def names(self, body: DecisionsBody) -> list[str]:
        return [f"questions[{number}]" for number in range(len(body.questions))]

    def write(self, parsed: ParsedRequest, results: Sequence[Any]) -> HttpResponse:
        body: DecisionsBody = parsed.context.body
        explains = parsed.http_request.explains
        pairs = zip(body.questions, results, strict=True)
        answers = [_answer(question, result, explains=explains) for question, result in pairs]
        response: Decision = {"model": served_name(self.model, body.model), "answers": answers}
        if not explains:
            response["usage"] = _usage(tokens_read(parsed.requests))
        return HttpResponse(encode_json(response))


def _answer(question: OpenAIQuestion, result: Any, *, explains: bool) -> DecisionAnswer:
    if isinstance(result, RequestError):
        return {"type": "refusal", "name": question.name, "message": str(result)}
    if explains:
        return {"type": question.type, "name": question.name, "explanation": result}
    if question.type == "predicate":
        return PredicateAnswer(type="predicate", name=question.name, probability=result[0])
    if question.type == "choice":
        values = [each.value for each in question.choices or ()]
        return ChoiceAnswer(
            type="choice",
            name=question.name,
            choice=values[result.index(max(result))],
            probabilities=[
                {"value": value, "probability": probability}
                for value, probability in zip(values, result, strict=True)
            ],
            confidence=confidence(result),
        )
    labels = [each.label for each in question.levels or ()]
    return ScoreAnswer(
        type="score",
        name=question.name,
        score=mean_level(result),
        probabilities=[
            {"value": value, "label": label, "probability": probability}
            for value, (label, probability) in enumerate(zip(labels, result, strict=True))
        ],
        confidence=confidence(result),
    )


def confidence(probabilities: Sequence[float]) -> float:
    """Return 1 where one option is certain, and 0 where all are equally likely."""
    least = 1 / len(probabilities)
    return max(0.0, (max(probabilities) - least) / (1 - least))


def mean_level(probabilities: Sequence[float]) -> float:
    """Return the mean of the numbers of the levels, the first of which is 0."""
    return sum(level * probability for level, probability in enumerate(probabilities))


def _usage(tokens: int) -> DecisionUsage:
    return {
        "input_tokens": tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 0,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": tokens,
    }


# The key of the text of each type of part.
TEXT_PARTS = {"input_text": "text", "output_text": "text", "refusal": "refusal"}
JSON_PART = "input_json"
# What each type of item is called in the text, and the keys of what it has.
ITEMS: Mapping[str, tuple[str, Sequence[str]]] = {
    "function_call": ("call", ("name", "arguments")),
    "function_call_output": ("result", ("output",)),
    "custom_tool_call": ("call", ("name", "input")),
    "custom_tool_call_output": ("result", ("output",)),
}


def text_of_input(given: Any) -> Any:
    """Return the text of an input: a text as it is, a single message without its role.

    Raises:
        RequestError: an item is no message and no call of a tool, or has an image.
    """
    if not isinstance(given, list):
        return given
    items = [_item(each, f"input[{number}]") for number, each in enumerate(given)]
    if len(items) == 1:
        return items[0][1]
    return "\n\n".join(f"{role}: {text}" for role, text in items)


def text_of_content(given: Any, name: str) -> str:
    """Return a content: a text, or parts of texts and JSON.

    Raises:
        RequestError: it is neither, or has an image.
    """
    if isinstance(given, str):
        return given
    if not isinstance(given, list):
        raise BadRequest(f"{name} must be a text or a list of parts, and is {json_type(given)}.")
    return "\n".join(_part(each, f"{name}[{number}]") for number, each in enumerate(given))


def text_of_json(given: Any) -> str:
    """Return a text as it is, and other values as JSON."""
    return given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)


def _item(item: Any, name: str) -> tuple[str, str]:
    """Return the role and the text of an item."""
    if not isinstance(item, dict):
        raise BadRequest(f"{name} must be a message, and is {json_type(item)}.")
    kind = item.get("type", "message")
    if kind == "message":
        role = item.get("role")
        if not isinstance(role, str):
            raise BadRequest(f"{name}.role must be a text, and is {json_type(role)}.")
        return role, text_of_content(item.get("content"), f"{name}.content")
    if not isinstance(kind, str) or kind not in ITEMS:
        raise Unprocessable(
            f"{name} has the type {quote(kind)}, and this server reads messages and calls of tools."
        )
    called, keys = ITEMS[kind]
    return called, " ".join(text_of_content(item.get(key), f"{name}.{key}") for key in keys)


def _part(part: Any, name: str) -> str:
    if not isinstance(part, dict):
        raise BadRequest(f"{name} must be an object, and is {json_type(part)}.")
    kind = part.get("type")
    if kind == JSON_PART:
        return text_of_json(part.get("data"))
    if not isinstance(kind, str) or kind not in TEXT_PARTS:
        raise Unprocessable(
            f"{name} has the type {quote(kind)}, and this model reads texts and JSON only."
        )
    text = part.get(TEXT_PARTS[kind])
    if not isinstance(text, str):
        raise BadRequest(f"{name}.{TEXT_PARTS[kind]} must be a text, and is {json_type(text)}.")
    return text


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
                name: _systemone_answer(question, result, name, explains=explains)
                for (name, question), result in pairs
            },
        }
        if not explains:
            tokens = tokens_read(parsed.requests)
            response["usage"] = {"input_tokens": tokens, "output_tokens": 0}
        return HttpResponse(encode_json(response))


def _described(value: Json | None) -> str | None:
    return None if value is None else text_of_json(value)


def _systemone_answer(
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
