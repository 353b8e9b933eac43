"""The paths that text-generation-inference and text-embeddings-inference share.

tokenize   {"inputs": "a text"} -> [{"id": 5, "text": "a", "start": 0, "stop": 1, …}, …]
info       the model and its limits
health     whether the model answers
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from .. import __version__
from ..batching.padding import text_size
from ..errors import (
    BadRequest,
    ErrorBody,
    HubErrorBody,
    RequestError,
    RequestTooLarge,
    Unprocessable,
)
from ..generation.parameters import GenerationParameters, specs_of
from ..http.request import HttpRequest
from ..http.response import HttpResponse, encode_json
from ..http.streams import SERVER_SENT_EVENTS
from ..types.model_info import ModelInfo
from ..types.parameters import json_type
from ..types.request import Operation, Request, TextToken, TokenizedText
from . import hugging_face
from .base import (
    NO_BODY,
    KeyTable,
    ParsedRequest,
    Route,
    check_not_explained,
    honoured,
    ignored,
    is_chat,
    refused,
)
from .hugging_face import StreamDetails, TokenEvent
from .items import check_keys, read_parameters

TOKENIZE, HEALTH = "tokenize", "health"
TOKENIZE_KEYS = KeyTable(
    {
        **honoured("inputs", "add_special_tokens"),
        **ignored("parameters", "options", "stream"),
        **refused(prompt_name=[]),
    }
)
# The bytes that a token has at least in a response.
TOKEN_BYTES = len('{"id":1,"text":"","special":false,"start":0,"stop":0},')
PLAIN = "text/plain; charset=utf-8"

Parse = Callable[[HttpRequest], ParsedRequest]
# Returns the body of a response; it is the context of a parsed request.
Write = Callable[[ParsedRequest, Sequence[Any]], Any]


class InputToken(TypedDict):
    """A token of a text and its characters, from `start` to `stop`; null where they are unknown."""

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


class ServedInfo(TypedDict):
    """A model and its limits; null for no limit. Embedding servers have the last keys."""

    model_id: str
    model_dtype: str
    model_pipeline_tag: str
    max_input_length: int | None
    max_input_tokens: int | None
    max_total_tokens: int | None
    max_client_batch_size: int
    version: str
    served_model_name: NotRequired[str]
    model_type: NotRequired[dict[str, Any]]
    max_batch_tokens: NotRequired[int | None]
    auto_truncate: NotRequired[bool]


class InferenceServerError(TypedDict):
    """An error of text-generation-inference, or with a capital of text-embeddings-inference."""

    error: str
    error_type: Literal[
        "validation", "overloaded", "generation", "Validation", "Overloaded", "Backend"
    ]


@with_config(ConfigDict(extra="forbid"))
class TokenizeTextsBody(TypedDict):
    """The body of `tokenize`: a text or several."""

    inputs: str | Annotated[list[str], Field(min_length=1)]
    add_special_tokens: NotRequired[bool | None]


class InferenceServer(hugging_face.Protocol):
    """Paths below the model's own, each with the function that parses its bodies."""

    body_keys = NO_BODY

    routes: ClassVar[Sequence[Route]] = (
        Route(
            TOKENIZE,
            name="tokenize",
            server="Text Generation Inference",
            summary="Return the tokens of texts.",
            response=list[InputToken] | list[list[InputToken] | ErrorBody],
            error=InferenceServerError,
            abilities=("tokenizes",),
            body=TokenizeTextsBody,
            keys=TOKENIZE_KEYS,
            examples=lambda _: {
                "one": {"inputs": "Once upon a time", "add_special_tokens": True},
                "list": {"inputs": ["Once upon a time"] * 2},
            },
            description="`inputs` gets tokens with their texts.",
        ),
        Route(
            "info",
            name="info",
            server="Text Generation Inference",
            summary="Return the limits of the model.",
            response=ServedInfo,
            error=InferenceServerError,
        ),
        Route(
            HEALTH,
            name="health",
            server="Text Generation Inference",
            summary="Return an empty response where the model answers.",
            response=None,
            error=InferenceServerError,
            other_types={"text/plain": str},
        ),
    )

    def __init__(self, model: ModelInfo) -> None:
        super().__init__(model)
        self._paths: Mapping[str, Parse] = {
            TOKENIZE: self._parse_tokenize,
            "info": lambda http_request: ParsedRequest(http_request, context=self._info),
            HEALTH: lambda http_request: ParsedRequest(http_request, checks_health=True),
        }

    @property
    def paths(self) -> Collection[str]:
        return self._paths.keys()

    def recognises(self, http_request: HttpRequest) -> bool:
        if http_request.path == TOKENIZE and TOKENIZE in self._paths:
            content = http_request.content
            return isinstance(content, dict) and "inputs" in content
        return http_request.path in self._paths

    def parse(self, http_request: HttpRequest) -> ParsedRequest:
        check_not_explained(http_request)
        return self._paths[http_request.path](http_request)

    def write(self, parsed: ParsedRequest, outcomes: Sequence[Any]) -> HttpResponse:
        if not parsed.requests:
            return self.response(parsed, [])
        return super().write(parsed, outcomes)

    def response(self, parsed: ParsedRequest, results: Sequence[Any]) -> HttpResponse:
        if parsed.context is None:
            return HttpResponse(b"", content_type=PLAIN)
        return HttpResponse(encode_json(parsed.context(parsed, results)))

    def error_response(self, http_request: HttpRequest, error: RequestError) -> HttpResponse:
        response = super().error_response(http_request, error)
        is_health = http_request.path == HEALTH
        return response if is_health else replace(response, status=self.status_of(error))

    def status_of(self, error: RequestError) -> int:
        """Return the status that the server has for an error on its other paths than `health`."""
        return error.status

    def _parse_tokenize(self, http_request: HttpRequest) -> ParsedRequest:
        content = read_object(http_request.content, ["inputs"], TOKENIZE_KEYS)
        parameters = {"add_special_tokens": content.get("add_special_tokens")}
        requests = self._texts(content["inputs"], parameters)
        characters, limit = text_size(content["inputs"]), self.model.limits.max_characters
        if characters > limit:
            raise RequestTooLarge(
                f"inputs has {characters:,} characters in all, and this model takes {limit:,}"
                "; send it in parts."
            )
        return ParsedRequest(http_request, requests, self._tokenized, Operation.TOKENIZE)

    def _texts(self, inputs: Any, parameters: Mapping[str, Any]) -> list[Request]:
        """Return a request for each text; two texts are no pair, whatever the model's mode."""
        if not isinstance(inputs, list) or is_chat(inputs):
            return [Request(inputs, parameters)]
        self.check_count(len(inputs), "inputs")
        return [Request(each, parameters, is_batch_item=True) for each in inputs]

    def _tokenized(self, parsed: ParsedRequest, results: Sequence[Any]) -> Any:
        limit = parsed.http_request.limits.max_response_bytes
        count = sum(len(each) for each in results if isinstance(each, TokenizedText))
        if count * TOKEN_BYTES > limit:
            raise RequestTooLarge(
                f"The response has {count:,} tokens, too many for the server's max_response_size of"
                f" {limit:,}; send less."
            )
        return [_tokens(each) if isinstance(each, TokenizedText) else each for each in results]

    def _info(self, _parsed: ParsedRequest, _results: Sequence[Any]) -> ServedInfo:
        limits = self.model.limits
        return {
            "model_id": self.model.name,
            "model_dtype": self.model.dtype,
            "model_pipeline_tag": self.model.mode.replace("_", "-"),
            "max_input_length": limits.max_length,
            "max_input_tokens": limits.max_length,
            "max_total_tokens": limits.max_total_tokens,
            "max_client_batch_size": limits.max_rows,
            "version": __version__,
        }


def read_object(
    content: Any, required: Sequence[str], known: KeyTable, owner: str = "The body"
) -> Mapping[str, Any]:
    """Return the content of a body, or of what `owner` names, which is an object with these keys.

    Args:
        owner: its name in an error.

    Raises:
        BadRequest: it is no object, or a key is missing or unknown.
        Unprocessable: it has one that is refused.
    """
    if not isinstance(content, dict):
        raise BadRequest(f"{owner} must be an object, and is {json_type(content)}.")
    check_keys(content, list(known.keys), owner)
    known.check_values(content)
    for name in required:
        if name not in content:
            raise BadRequest(f"{owner} has no {name}; add it.")
    return content


def _tokens(tokenized: TokenizedText) -> list[InputToken]:
    text, special, ids = tokenized.text, tokenized.special, tokenized.ids.tolist()
    if tokenized.offsets is None:
        parts = [(name, None, None) for name in tokenized.names]
    else:
        places = zip(ids, tokenized.offsets.tolist(), strict=True)
        parts = [(special.get(each, text[start:end]), start, end) for each, (start, end) in places]
    return [
        {"id": number, "text": part, "special": number in special, "start": start, "stop": stop}
        for number, (part, start, stop) in zip(ids, parts, strict=True)
    ]


BODY = KeyTable({**honoured("inputs", "parameters"), **ignored("options", "stream")})
SPECS = {name: spec for name, spec in specs_of(GenerationParameters).items() if spec.tgi}
# Those of TGI; the parameters of the task are accepted as well.
PARAMETERS = KeyTable(
    {
        **honoured(*SPECS),
        **refused(watermark=False),
    }
)
MAX_NEW_TOKENS = 100
# TGI's statuses of errors that have others here.
STATUSES = {413: 422, 503: 429}
# The settings that ask for sampling, and their values that do not.
WARPERS: Mapping[str, Sequence[Any]] = {
    name: (None, spec.neutral) for name, spec in SPECS.items() if spec.needs == "do_sample"
}


@with_config(ConfigDict(extra="forbid"))
class GenerateBody(TypedDict):
    """The body of `generate` and `generate_stream`."""

    inputs: str
    parameters: NotRequired[dict[str, Any] | None]
    options: NotRequired[dict[str, Any]]
    stream: NotRequired[bool | None]


class GenerateDetails(StreamDetails):
    """Why a text ended, and what it took; `prefill` has the tokens of the prompt, if requested."""

    prefill: list[TextToken]
    tokens: list[TextToken]
    top_tokens: NotRequired[list[list[TextToken]]]
    prefill_top_tokens: NotRequired[list[list[TextToken]]]


class GenerateResult(TypedDict):
    """The new text, and its details if requested."""

    generated_text: str
    details: NotRequired[GenerateDetails]


GENERATE = Route(
    "generate",
    name="generate",
    server="Text Generation Inference",
    summary="Continue a prompt.",
    response=GenerateResult,
    error=HubErrorBody,
    abilities=("generates",),
    body=GenerateBody,
    keys=BODY,
    examples=lambda sample: {"one": dict(sample), "inputs": {"inputs": sample["inputs"]}},
    other_statuses={429: "The model is overloaded, or the time limit has passed."},
)


class Protocol(InferenceServer):
    """TGI's paths; `tokenize`, `info` and `health` are for models that generate texts."""

    routes = (
        *InferenceServer.routes,
        GENERATE,
        replace(
            GENERATE,
            path="generate_stream",
            name="generateStream",
            summary="Continue a prompt, as server-sent events.",
            response=None,
            stream=SERVER_SENT_EVENTS,
            part=TokenEvent,
        ),
    )

    def __init__(self, model: ModelInfo) -> None:
        super().__init__(model)
        shared = self._paths if model.task.generation.texts else {}
        self._paths = {
            **shared,
            "generate": self._parse_generate,
            "generate_stream": self._parse_generate_stream,
        }

    def error_body(self, error: RequestError) -> Any:
        return error.hub_body()

    def status_of(self, error: RequestError) -> int:
        return STATUSES.get(error.status, error.status)

    def _parse_generate(self, http_request: HttpRequest) -> ParsedRequest:
        return ParsedRequest(http_request, [self._prompt(http_request)], self._generated)

    def _parse_generate_stream(self, http_request: HttpRequest) -> ParsedRequest:
        return ParsedRequest(
            http_request, [self.streamed(http_request, self._prompt(http_request))]
        )

    def _prompt(self, http_request: HttpRequest) -> Request:
        GENERATE.check_abilities(self.model)
        content = read_object(http_request.content, ["inputs"], BODY)
        inputs = content["inputs"]
        if not isinstance(inputs, str):
            raise BadRequest(f"inputs must be a text, and is {json_type(inputs)}.")
        return Request(inputs, self._parameters(read_parameters(content)))

    def _parameters(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters of a request with TGI's defaults; null means the default there."""
        PARAMETERS.check_values(given)
        given = {name: value for name, value in given.items() if value is not None}
        if given.get("num_return_sequences", 1) != 1:
            raise Unprocessable("The response has one text; leave num_return_sequences out.")
        defaults: dict[str, Any] = {"return_full_text": False, "num_return_sequences": 1}
        if self.model.task.generation.is_encoder_decoder:
            # Pipelines search with beams, which TGI does not have.
            defaults["num_beams"] = 1
        if "max_length" not in given:
            own = self.model.parameters["max_new_tokens"].get("default")
            defaults["max_new_tokens"] = own or MAX_NEW_TOKENS
        if any(given.get(name) not in neutral for name, neutral in WARPERS.items()):
            given["do_sample"] = True
        return {**defaults, **given}

    def _generated(self, _parsed: ParsedRequest, results: Sequence[Any]) -> GenerateResult:
        """Return the one text of a result, with the keys that TGI's details have in addition."""
        others = dict(results[0][0])
        text: Any = {"generated_text": others.pop(self.model.task.wire.result_columns[0]), **others}
        if "details" in text:
            text["details"] = {"prefill": [], "tokens": [], **text["details"]}
        result: GenerateResult = text
        return result

    def _tokenized(self, parsed: ParsedRequest, results: Sequence[Any]) -> Any:
        tokens = super()._tokenized(parsed, results)
        return tokens if parsed.requests[0].is_batch_item else tokens[0]
