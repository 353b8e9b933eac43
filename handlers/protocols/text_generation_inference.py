"""Text-generation-inference (TGI) below the model's path, `/predictions/<model>/<version>/`:

    generate          {"inputs": "a text", "parameters": {…}} -> {"generated_text": "…"}
    generate_stream   the same body -> an event for each token

and `tokenize`, `info` and `health` of a model that generates texts. Parameters have TGI's defaults
here: the new text alone, at most 100 new tokens, and sampling where a temperature, `top_k`, `top_p`
or `typical_p` asks for it. TGI's path without a name is the Hugging Face protocol's.

https://huggingface.github.io/text-generation-inference
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NotRequired

from pydantic import ConfigDict, with_config
from typing_extensions import TypedDict

from handlers.errors import BadRequest, HubErrorBody, RequestError, Unprocessable
from handlers.generation.parameter_spec import specs_of
from handlers.generation.parameters import GenerationParameters
from handlers.http.request import HttpRequest
from handlers.http.streams import SERVER_SENT_EVENTS
from handlers.protocols.base import ParsedRequest, check_abilities
from handlers.protocols.hugging_face import StreamDetails, TokenEvent
from handlers.protocols.inference_server import InferenceServer, read_object
from handlers.protocols.items import read_parameters
from handlers.protocols.keys import KeyTable, honoured, ignored, refused
from handlers.protocols.routes import Route
from handlers.types.model_info import ModelInfo
from handlers.types.request import Request, TextToken
from handlers.types.text_checks import json_type

BODY = KeyTable({**honoured("inputs", "parameters"), **ignored("options", "stream")})
SPECS = {name: spec for name, spec in specs_of(GenerationParameters).items() if spec.tgi}
# Those of TGI; the parameters of the task are accepted as well.
PARAMETERS = KeyTable(
    {
        **honoured(*SPECS),
        **refused(decoder_input_details=False, watermark=False),
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
    """Why a text ended, and what it took; `prefill` is empty."""

    prefill: list[dict[str, Any]]
    tokens: list[TextToken]
    top_tokens: NotRequired[list[list[TextToken]]]


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
    other_statuses={429: "The model is overloaded, or out of time."},
)


class Protocol(InferenceServer):
    """TGI's paths; those of the tokenizer and the limits are for models that generate."""

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
        shared = self._paths if model.generates else {}
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
        check_abilities(self.model, GENERATE)
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
        if self.model.is_encoder_decoder:
            # Pipelines search with beams, which TGI does not have.
            defaults["num_beams"] = 1
        if "max_length" not in given:
            own = self.model.parameters["max_new_tokens"].get("default")
            defaults["max_new_tokens"] = own or MAX_NEW_TOKENS
        if any(given.get(name) not in neutral for name, neutral in WARPERS.items()):
            given["do_sample"] = True
        return {**defaults, **given}

    def _generated(self, _exchange: ParsedRequest, results: Sequence[Any]) -> GenerateResult:
        """Return the one text of a result, with the keys that TGI's details have in addition."""
        others = dict(results[0][0])
        text: Any = {"generated_text": others.pop(self.model.result_columns[0]), **others}
        if "details" in text:
            text["details"] = {"prefill": [], "tokens": [], **text["details"]}
        result: GenerateResult = text
        return result

    def _tokenized(self, parsed: ParsedRequest, results: Sequence[Any]) -> Any:
        tokens = super()._tokenized(parsed, results)
        return tokens[0] if parsed.requests[0].alone else tokens
