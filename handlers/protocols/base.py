"""The interface of a wire format: its routes with their keys, what it parses and what it writes."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel

from ..config.messages import enumerate_names
from ..errors import BadRequest, RequestError, RequestTooLarge, Unprocessable, copied
from ..http.request import HttpRequest
from ..http.response import JSON, HttpResponse, encode_json
from ..http.streams import Stream
from ..types.model_info import Ability, ModelInfo
from ..types.request import Operation, Request

# Lists the keys of a body that no server defines.
UNKNOWN_KEYS = "X-Unknown-Keys"
EMPTY: Sequence[Any] = ("", [], {})
MAX_SHOWN, MAX_CHARACTERS = 10, 40

Treatment = Literal["honoured", "without effect", "refused"]


@dataclass(frozen=True)
class Key:
    """What a route does with a key.

    Attributes:
        treatment: whether it is honoured, changes nothing, or is refused with status 422.
        neutral: the values of a refused key that change nothing, in addition to null and empties.
        remedy: what to do in its place, for the error.
        refuses_empty: whether an empty value is refused, too.
    """

    treatment: Treatment
    neutral: Sequence[Any] = ()
    remedy: str = "leave it out"
    refuses_empty: bool = False


@dataclass(frozen=True)
class KeyTable:
    """The keys of one route, by name."""

    keys: Mapping[str, Key] = field(default_factory=dict)

    @classmethod
    def of(cls, body: type[Any], *others: Mapping[str, Key]) -> Self:
        """Return the keys of a body: its fields are honoured, unless `others` say otherwise."""
        is_model = issubclass(body, BaseModel)
        keys = honoured(*(body.model_fields if is_model else body.__annotations__))
        for each in others:
            keys |= each
        return cls(keys)

    def check(self, http_request: HttpRequest) -> HttpRequest:
        """Check that a body asks for nothing that the route cannot do.

        Returns:
            The request, whose response lists the keys that no server defines.

        Raises:
            Unprocessable: with the first refused key that has an effect.
        """
        content = http_request.content
        if not isinstance(content, dict):
            return http_request
        self.check_values(content)
        unknown = [name for name in content if name not in self.keys]
        if not unknown:
            return http_request
        listed = enumerate_names(unknown, limit=MAX_SHOWN, width=MAX_CHARACTERS)
        return http_request.with_response_headers({UNKNOWN_KEYS: listed})

    def check_values(self, content: Mapping[str, Any]) -> None:
        """Refuse the first key whose value asks for what the route cannot do."""
        for name, value in content.items():
            key = self.keys.get(name)
            if key and key.treatment == "refused" and not _is_neutral(value, key):
                raise Unprocessable(f"{name} cannot be done by this server; {key.remedy}.")

    def named(self, treatment: Treatment) -> list[str]:
        """Return the names of the keys with a treatment."""
        return [name for name, key in self.keys.items() if key.treatment == treatment]


def honoured(*names: str) -> dict[str, Key]:
    """Return keys that are honoured."""
    return dict.fromkeys(names, Key("honoured"))


def ignored(*names: str) -> dict[str, Key]:
    """Return keys that have no effect."""
    return dict.fromkeys(names, Key("without effect"))


def refused(**neutral: Any) -> dict[str, Key]:
    """Return keys that are refused, from the values of each that change nothing."""
    return {
        name: Key("refused", values if isinstance(values, list) else [values])
        for name, values in neutral.items()
    }


def _is_neutral(value: Any, key: Key) -> bool:
    """Return whether a value changes nothing; 0 is a number of `logprobs`, not false."""
    if isinstance(value, dict):
        # Clients write the settings that they do not set as null.
        value = {name: each for name, each in value.items() if each is not None}
    if value is None or (value in EMPTY and not key.refuses_empty):
        return True
    return any(
        value == each and isinstance(value, bool) == isinstance(each, bool) for each in key.neutral
    )


# Bodies by name, from the sample request of a mode.
Examples = Callable[[Mapping[str, Any]], Mapping[str, Any]]
# What a model without the ability does not do, for errors.
MISSING: Mapping[Ability, str] = {
    "embed": "makes no embeddings of texts",
    "embed_all": "makes no embeddings of tokens",
    "embed_sparse": "makes no sparse embeddings",
    "rerank": "ranks no texts",
    "similarity": "compares no sentences",
    "predict": "classifies no texts",
    "transcribe": "recognizes no speech",
    "speak": "speaks no texts",
    "generates": "writes no texts",
    "continues_prompts": "continues no prompts and chats. Send its inputs without this path, or to"
    " generate",
    "generates_images": "makes no images",
    "scores": "gives pairs of texts no scores",
    "pools": "makes no vectors of texts or tokens",
    "decides": "answers no questions with known answers",
    "moderates": "moderates no texts",
    "redacts": "finds no entities of a text",
}


@dataclass(frozen=True)
class Route:
    """A path below the path of a model, with the types of its requests and responses.

    Attributes:
        path: the path after `/predictions/<model>/<version>/`.
        name: the id of the operation, for generated clients.
        server: the server or API that defines it.
        summary: what it does.
        response: the type of a response in JSON; None where there is none.
        error: the type of an error.
        abilities: what a model must do, one of them; none for any model.
        body: the type of a request's body; None for a GET.
        keys: the keys of the body.
        examples: returns bodies.
        description: further text.
        stream: the format of a response in parts; None where there is none.
        part: the type of a part.
        body_types: the content types of a body.
        other_types: the content types of other responses, each with `str` or `bytes`.
        other_statuses: the statuses of errors that other protocols do not have, and their meaning.
        is_explained: whether a body sent to `/explanations` gets an explanation of its answer.
    """

    path: str
    name: str
    server: str
    summary: str
    response: Any
    error: Any
    abilities: tuple[Ability, ...] = ()
    body: Any = None
    keys: KeyTable = field(default_factory=KeyTable)
    examples: Examples = lambda _: {}
    description: str = ""
    stream: Stream | None = None
    part: Any = None
    body_types: Sequence[str] = (JSON,)
    other_types: Mapping[str, type] = field(default_factory=dict)
    other_statuses: Mapping[int, str] = field(default_factory=dict)
    is_explained: bool = False

    def check(self, http_request: HttpRequest, model: ModelInfo) -> HttpRequest:
        """Check that a request asks a model for something that both the route and the model do.

        Returns:
            The request, whose response lists the keys that no server defines.

        Raises:
            Unprocessable: the model lacks the ability, the request is for an explanation, or it has
                a refused key.
        """
        self.check_abilities(model)
        if not self.is_explained:
            check_not_explained(http_request)
        return self.keys.check(http_request)

    def check_abilities(self, model: ModelInfo) -> None:
        """Refuse a model that does not do what a route needs; the engine checks for a tokenizer."""
        if "tokenizes" in self.abilities or not self.abilities:
            return
        if model.task.abilities.isdisjoint(self.abilities):
            ability = self.abilities[0]
            if ability == "continues_prompts" and not model.task.generation.texts:
                ability = "generates"
            raise Unprocessable(f"This model's mode is {model.mode}; it {MISSING[ability]}.")


# Errors whose cause is in their item.
ITEM_ERRORS = (BadRequest, RequestTooLarge, Unprocessable)
# What tasks call the inputs of a request.
INPUTS = "inputs"
QUOTED = re.compile(r"""("[^"]*"|'[^']*')""")


@dataclass(frozen=True)
class ParsedRequest:
    """A parsed HTTP request, and what its protocol needs to write the response.

    Attributes:
        http_request: the HTTP request.
        items: the request in each item of the body, or the error of an item that is not readable.
        context: what the protocol needs for the response in addition.
        call: what the engine does for the requests; by default it predicts or explains, as the
            HTTP request says.
        checks_health: whether the response is an error where the engine has failed.
    """

    http_request: HttpRequest
    items: Sequence[Request | RequestError] = ()
    context: Any = None
    call: Operation | None = None
    checks_health: bool = False

    @property
    def operation(self) -> Operation:
        """What the engine does for the requests."""
        if self.call is not None:
            return self.call
        return Operation.EXPLAIN if self.http_request.explains else Operation.PREDICT

    @cached_property
    def requests(self) -> list[Request]:
        """The requests for the engine, in the order of their items."""
        requests = []
        for item in self.items:
            if isinstance(item, Request):
                requests.append(item)
        return requests

    def by_item(self, outcomes: Sequence[Any]) -> list[Any]:
        """Return the outcome of each item, from the outcomes of the requests."""
        found, by_item = iter(outcomes), []
        for item in self.items:
            by_item.append(next(found) if isinstance(item, Request) else item)
        return by_item


NO_BODY: Mapping[str, type] = MappingProxyType({})


class BaseProtocol(ABC):
    """A wire format; an instance serves one model and stores nothing about a request.

    Attributes:
        routes: the paths of the format below the path of a model.
        body_keys: the keys of which an object has at least one, with the types of their values, if
            it is sent to the model's own path in this format; `NO_BODY` for a format that is known
            by its path or content type, and None for any body.
    """

    routes: ClassVar[Sequence[Route]] = ()
    body_keys: Mapping[str, type] | None = None

    def __init__(self, model: ModelInfo) -> None:
        self.model = model

    @property
    def paths(self) -> Collection[str] | None:
        """The paths that the format may recognise; None for any path."""
        return {route.path for route in self.routes} or None

    def recognises(self, http_request: HttpRequest) -> bool:
        """Return whether a request is in this format, by its path, content type or content.

        Raises:
            RequestError: the content decides and cannot be decoded.
        """
        return http_request.path in (self.paths or ())

    @abstractmethod
    def parse(self, http_request: HttpRequest) -> ParsedRequest:
        """Parse a request, once.

        Raises:
            RequestError: the request as a whole cannot be understood.
        """

    def write(self, parsed: ParsedRequest, outcomes: Sequence[Any]) -> HttpResponse:
        """Return the response, from the outcome of each request.

        An error stands in the place of its item; where all items failed, the first error is the
        response.
        """
        results, errors = [], []
        are_all = len(outcomes) == len(parsed.items)
        for outcome in outcomes if are_all else parsed.by_item(outcomes):
            if isinstance(outcome, RequestError):
                errors.append(outcome)
                results.append(outcome.body())
            else:
                results.append(outcome)
        if errors and len(errors) == len(results):
            return self.error_response(parsed.http_request, errors[0])
        return self.response(parsed, results)

    def response(self, parsed: ParsedRequest, results: Sequence[Any]) -> HttpResponse:
        """Return the response with the result of each item, or its error's body."""
        return HttpResponse(encode_json(self.response_body(parsed, results)))

    def response_body(self, parsed: ParsedRequest, results: Sequence[Any]) -> Any:
        """Return the body of the response, ready for JSON."""
        return list(results)

    def error_body(self, error: RequestError) -> Any:
        """Return an error in this format, ready for JSON."""
        return error.whole_body()

    def error_response(self, http_request: HttpRequest, error: RequestError) -> HttpResponse:
        """Return the response to a request that failed as a whole."""
        body = encode_json(self.error_body(error))
        return HttpResponse(body, error.status, headers=error.headers)

    def requests(
        self, inputs: Any, parameters: Mapping[str, Any], name: str = "inputs"
    ) -> list[Request]:
        """Return a request for each item of a list, or one request for other inputs."""
        if not isinstance(inputs, list) or not self.is_list(inputs):
            return [Request(inputs, parameters)]
        self.check_count(len(inputs), name)
        return [Request(item, parameters, is_batch_item=True) for item in inputs]

    def is_list(self, inputs: Any) -> bool:
        """Return whether inputs are a list of items: a chat, and a pair of texts, are one item."""
        if not isinstance(inputs, list) or is_chat(inputs):
            return False
        return not (self.model.task.wire.takes_pairs and is_pair(inputs))

    def check_count(self, count: int, name: str) -> None:
        """Refuse an empty list, and more items than `max_rows` of the YAML."""
        check_count(count, name, self.model.limits.max_rows)


def check_not_explained(http_request: HttpRequest) -> None:
    """Refuse a path that has no explanations below `/explanations`."""
    if http_request.explains:
        raise Unprocessable(f"{http_request.path} explains nothing; send inputs without this path.")


def texts_or_ids(value: Any, name: str, max_rows: int) -> list[Any]:
    """Return the texts of a body: one or several, or the token ids of one or of several."""
    is_list = isinstance(value, list) and type(next(iter(value), None)) is not int
    texts = value if is_list else [value]
    check_count(len(texts), name, max_rows)
    return texts


def tokens_read(requests: Sequence[Request]) -> int:
    """Return how many tokens the model read for requests that count them."""
    return sum(each.token_count.tokens for each in requests if each.token_count)


def first_error(outcomes: Sequence[Any], name: str | None) -> RequestError | None:
    """Return the first error among outcomes, for a format without errors in lists.

    If other items have results, its sentence begins with its item, such as `input[2]`; it does not
    where the items have no name.
    """
    errors = {at: each for at, each in enumerate(outcomes) if isinstance(each, RequestError)}
    if not errors:
        return None
    at, error = next(iter(errors.items()))
    if name and len(errors) < len(outcomes) and isinstance(error, ITEM_ERRORS):
        text = str(error)
        text = text.removeprefix(INPUTS) if text.startswith(f"{INPUTS} ") else f": {text}"
        return type(error)(f"{name}[{at}]{text}")
    return error


def with_names(error: RequestError, names: Mapping[str, str]) -> RequestError:
    """Return an error of the engine with the names that the keys have in a protocol.

    Args:
        names: the protocol's names by the tasks' names. What is quoted stays as it is.
    """
    if not isinstance(error, ITEM_ERRORS):
        return error
    words = re.compile(rf"(?<![\w.]){'(?:' + '|'.join(map(re.escape, names)) + ')'}(?![\w.])")
    parts = QUOTED.split(str(error))
    parts[::2] = [words.sub(lambda found: names[found[0]], part) for part in parts[::2]]
    renamed = copied(error)
    renamed.args = ("".join(parts),)
    return renamed


def check_count(count: int, name: str, max_rows: int) -> None:
    """Refuse an empty list, and more items than a maximum."""
    if not count:
        raise BadRequest(f"{name} is an empty list; send at least one item.")
    if count > max_rows:
        raise RequestTooLarge(
            f"{name} has {count} items, and this model takes {max_rows} a request"
            "; send them in parts."
        )


def result_or_error_body(outcome: Any) -> Any:
    """Return a result as it is, and an error as the body that stands in the result's place."""
    return outcome.body() if isinstance(outcome, RequestError) else outcome


def is_pair(inputs: Sequence[Any]) -> bool:
    """Return whether a list holds two texts."""
    return len(inputs) == 2 and all(isinstance(item, str) for item in inputs)


def is_chat(inputs: Any) -> bool:
    """Return whether a list holds the messages of a chat, each with a role."""
    return bool(inputs) and all(isinstance(item, dict) and "role" in item for item in inputs)
