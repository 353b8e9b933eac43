"""Text-generation-inference (TGI) below the model's path, `/predictions/<model>/<version>/`:

    generate          {"inputs": "a text", "parameters": {…}} -> {"generated_text": "…"}
    generate_stream   the same body -> an event for each token
    tokenize          {"inputs": "a text"} -> [{"id": 5, "text": "a", "start": 0, "stop": 1, …}, …]
    info              the model and its limits
    health            whether the model answers

Parameters have TGI's defaults here: the new text alone, at most 100 new tokens, and sampling where
a temperature, `top_k`, `top_p` or `typical_p` asks for it. Where a model generates no texts,
`tokenize`, `info` and `health` work as those of text-embeddings-inference (TEI), whose `tokenize`
has a list for each text. TGI's path without a name is the Hugging Face protocol's.

https://huggingface.github.io/text-generation-inference and /text-embeddings-inference
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from handlers import __version__
from handlers.errors import BadRequest, RequestError, RequestTooLarge, Unprocessable
from handlers.http.request import HttpRequest
from handlers.http.response import HttpResponse, encode_json
from handlers.protocols import hugging_face
from handlers.protocols.base import Exchange, check_generates, check_not_explained
from handlers.protocols.items import check_keys, read_parameters
from handlers.runtime.waves import text_size
from handlers.schemas.model_info import ModelInfo
from handlers.schemas.request import Request
from handlers.schemas.text_checks import json_type
from handlers.schemas.tokenized_text import TokenizedText

TOKENIZE = "tokenize"
KEYS = ["inputs", "parameters", "options", "stream"]
TOKENIZE_KEYS = [*KEYS, "add_special_tokens"]
MAX_NEW_TOKENS = 100
# The settings that ask for sampling, and their values that do not.
WARPERS: Mapping[str, Sequence[Any]] = {
    "temperature": (None, 1),
    "top_k": (None, 0),
    "top_p": (None, 1),
    "typical_p": (None, 1),
}
# The bytes that a token has at least in a response.
TOKEN_BYTES = len('{"id":1,"text":"","special":false,"start":0,"stop":0},')
PLAIN = "text/plain; charset=utf-8"

Parse = Callable[[HttpRequest], Exchange]


class Protocol(hugging_face.Protocol):
    """TGI's paths; those that generate are for models that do, the others for every model."""

    def __init__(self, model: ModelInfo) -> None:
        super().__init__(model)
        self._paths: Mapping[str, Parse] = {
            "generate": self._parse_generate,
            "generate_stream": self._parse_generate_stream,
            TOKENIZE: self._parse_tokenize,
            "info": lambda http_request: Exchange(http_request, context=self._info),
            "health": Exchange,
        }

    def recognises(self, http_request: HttpRequest) -> bool:
        if http_request.path == TOKENIZE:
            content = http_request.content
            return isinstance(content, dict) and "inputs" in content
        return http_request.path in self._paths

    def parse(self, http_request: HttpRequest) -> Exchange:
        check_not_explained(http_request, http_request.path)
        return self._paths[http_request.path](http_request)

    def write(self, exchange: Exchange, outcomes: Sequence[Any]) -> HttpResponse:
        if not exchange.requests:
            return self.response(exchange, [])
        return super().write(exchange, outcomes)

    def response(self, exchange: Exchange, results: Sequence[Any]) -> HttpResponse:
        if exchange.context is None:
            return HttpResponse(b"", content_type=PLAIN)
        return HttpResponse(encode_json(exchange.context(exchange, results)))

    def error_body(self, error: RequestError) -> Any:
        return hugging_face.tgi_error_body(error)

    def _parse_generate(self, http_request: HttpRequest) -> Exchange:
        return Exchange(http_request, [self._prompt(http_request)], self._generated)

    def _parse_generate_stream(self, http_request: HttpRequest) -> Exchange:
        request, stream = self._prompt(http_request), self.stream(http_request)
        parameters = {"logprobs": self._records_tokens(request), **request.parameters}
        return Exchange(http_request, [replace(request, parameters=parameters, stream=stream)])

    def _records_tokens(self, request: Request) -> bool:
        """Return whether each token of a request has an event of its own, with its probability."""
        beams, lookup = (
            self._parameter(name, request) for name in ("num_beams", "prompt_lookup_num_tokens")
        )
        return beams in (None, 1) and not lookup

    def _prompt(self, http_request: HttpRequest) -> Request:
        check_generates(self.model)
        content = _object_with_inputs(http_request.content, KEYS)
        inputs = content["inputs"]
        if not isinstance(inputs, str):
            raise BadRequest(f"inputs must be a text, and is {json_type(inputs)}.")
        return Request(inputs, self._parameters(read_parameters(content)))

    def _parameters(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters of a request with TGI's defaults; null means the default there."""
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

    def _generated(self, _exchange: Exchange, results: Sequence[Any]) -> dict[str, Any]:
        """Return the one text of a result, with the keys that TGI's details have in addition."""
        text = dict(results[0][0])
        text = {"generated_text": text.pop(self.model.result_columns[0]), **text}
        if "details" in text:
            text["details"] = {"prefill": [], "tokens": [], **text["details"]}
        return text

    def _parse_tokenize(self, http_request: HttpRequest) -> Exchange:
        content = _object_with_inputs(http_request.content, TOKENIZE_KEYS)
        parameters = {"add_special_tokens": content.get("add_special_tokens")}
        requests = self.requests(content["inputs"], parameters)
        characters, limit = text_size(content["inputs"]), self.model.limits.max_characters
        if characters > limit:
            raise RequestTooLarge(
                f"inputs has {characters:,} characters in all, and this model takes {limit:,}"
                "; send it in parts."
            )
        return Exchange(http_request, requests, self._tokenized, "tokenize")

    def _tokenized(self, exchange: Exchange, results: Sequence[Any]) -> Any:
        limit = exchange.http_request.limits.max_response_bytes
        count = sum(len(each) for each in results if isinstance(each, TokenizedText))
        if count * TOKEN_BYTES > limit:
            raise RequestTooLarge(
                f"The response has {count:,} tokens, too many for the server's max_response_size of"
                f" {limit:,}; send less."
            )
        lists = [_tokens(each) if isinstance(each, TokenizedText) else each for each in results]
        is_single = self.model.generates and exchange.requests[0].alone
        return lists[0] if is_single else lists

    def _info(self, _exchange: Exchange, _results: Sequence[Any]) -> dict[str, Any]:
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


def _object_with_inputs(content: Any, keys: Sequence[str]) -> Mapping[str, Any]:
    """Return the content of a body, which is an object with `inputs`.

    Raises:
        BadRequest: it is not, or has unknown keys.
    """
    if not isinstance(content, dict):
        raise BadRequest(f"The body must be an object, and is {json_type(content)}.")
    check_keys(content, keys, "The body")
    if "inputs" not in content:
        raise BadRequest("The body has no inputs; send a text under that key.")
    return content


def _tokens(tokenized: TokenizedText) -> list[dict[str, Any]]:
    text, special = tokenized.text, tokenized.special
    pairs = zip(tokenized.ids.tolist(), tokenized.offsets.tolist(), strict=True)
    return [
        {
            "id": number,
            "text": special.get(number, text[start:stop]),
            "special": number in special,
            "start": start,
            "stop": stop,
        }
        for number, (start, stop) in pairs
    ]
