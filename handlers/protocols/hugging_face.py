"""The Hugging Face way: `{"inputs": …, "parameters": {…}}`; a list of inputs gets a list back.

With `"stream": true` a prompt's continuation comes as text-generation-inference's events.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from handlers.errors import BadRequest, RequestError, Unprocessable
from handlers.http.request import HttpRequest
from handlers.http.response import JSON, HttpResponse
from handlers.http.server_sent_events import EVENTS, streaming_started
from handlers.protocols.base import RowProtocol
from handlers.protocols.items import (
    asks_elsewhere,
    check_keys,
    from_base64,
    parameters_in,
    streams,
    target_in,
)
from handlers.protocols.result_formats import format_results, preferred_type
from handlers.protocols.token_events import TokenEventStream, broken
from handlers.schemas.request import Request

KEYS = ["inputs", "parameters", "options", "stream", "target"]
# These take the first of several lists of labels, as their own hub answers for one text.
NESTING_CLIENTS = ("hf_hub/", "@huggingface/inference/")
# Where the hub's own clients look for what went wrong.
MESSAGE = "X-Error-Message"


class Protocol(RowProtocol):
    """Bodies of the Hugging Face inference toolkit; `options` are for its hub and are left.

    `target` is for explanations only.
    """

    def recognises(self, http_request: HttpRequest) -> bool:
        content = http_request.content
        if not isinstance(content, dict):
            return False
        return "inputs" in content or ("parameters" in content and not asks_elsewhere(content))

    def read(self, http_request: HttpRequest) -> list[Request]:
        content = http_request.content
        check_keys(content, KEYS, "The body")
        if "inputs" not in content:
            raise BadRequest("The body has no inputs; send them under that key.")
        parameters = parameters_in(content) | target_in(content, explains=http_request.explains)
        requests = self.requests(from_base64(content["inputs"]), parameters)
        if not streams(content):
            return requests
        self._check_stream(http_request, requests[0])
        return [replace(requests[0], stream=TokenEventStream(http_request))]

    def write(
        self, http_request: HttpRequest, requests: Sequence[Request], outcomes: Sequence[Any]
    ) -> HttpResponse:
        stream, outcome = requests[0].stream, outcomes[0]
        if not isinstance(stream, TokenEventStream):
            return super().write(http_request, requests, outcomes)
        if not isinstance(outcome, RequestError):
            new = self._new_text(outcome[0]["generated_text"], requests[0])
            return HttpResponse(stream.last(new, outcome[0]), content_type=EVENTS)
        if streaming_started(requests):
            return HttpResponse(broken(outcome), content_type=EVENTS)
        return self.refuse(http_request, outcome)

    def refuse(self, http_request: HttpRequest, error: RequestError) -> HttpResponse:
        """Return the usual answer, with its sentence in a header as well."""
        return replace(
            super().refuse(http_request, error), headers={MESSAGE: _in_ascii(str(error))}
        )

    def lay_out(
        self, http_request: HttpRequest, requests: Sequence[Request], results: Sequence[Any]
    ) -> HttpResponse:
        kind = preferred_type(http_request, usual=JSON)
        if kind == JSON:
            return super().lay_out(http_request, requests, results)
        return format_results(results, kind, self.model.mode, explains=http_request.explains)

    def reply(
        self, http_request: HttpRequest, requests: Sequence[Request], results: Sequence[Any]
    ) -> Any:
        if not requests[0].alone:
            return list(results)
        return list(results) if self._nests(http_request, results[0]) else results[0]

    def _check_stream(self, http_request: HttpRequest, request: Request) -> None:
        if self.model.mode != "text_generation" or http_request.explains:
            raise Unprocessable("Only generated texts are streamed; leave stream out.")
        if not request.alone or self._setting("num_return_sequences", request) not in (None, 1):
            raise Unprocessable("A stream tells one text; send one prompt and ask for one answer.")

    def _setting(self, name: str, request: Request) -> Any:
        """Return what a request sets, or what its model's YAML does."""
        return request.parameters.get(name, self.model.parameters[name].get("default"))

    def _new_text(self, generated: Any, request: Request) -> str:
        """Return what of a generated text stands behind the prompt."""
        if isinstance(generated, list):
            return str(generated[-1]["content"])
        whole = self._setting("return_full_text", request) and isinstance(request.inputs, str)
        return str(generated[len(request.inputs) :] if whole else generated)

    def _nests(self, http_request: HttpRequest, result: Any) -> bool:
        labels = self.model.mode == "sequence_classification" and isinstance(result, list)
        agent = http_request.header("user-agent")
        return labels and any(client in agent for client in NESTING_CLIENTS)


def _in_ascii(sentence: str) -> str:
    """Return a sentence as a header can carry it."""
    plain = sentence.replace("…", "...")
    return "".join(letter if " " <= letter <= "~" else "?" for letter in plain)
