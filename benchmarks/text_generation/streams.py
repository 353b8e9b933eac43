"""A client of this kit's text generation over HTTP, with and without streams."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException
from typing import Any

import httpx
from transformers import PreTrainedTokenizerBase

from benchmarks.contenders.base import TIMEOUT, ErrorResponse, NoResponse
from benchmarks.text_generation.contender import Speed
from benchmarks.text_generation.workloads import GenerationRequest
from hf_serve.handlers.errors import KitError

EVENT = "data:"


class IncompleteText(KitError):
    """A response has another number of tokens than was asked for."""

    def __init__(self, name: str, asked: int, answer: Any) -> None:
        super().__init__(
            f"{name} should have generated {asked} tokens and responded with"
            f" {' '.join(json.dumps(answer).split())[:200]}; read its logs."
        )


class _Connection(threading.local):
    """A connection for each thread, for whole responses.

    A request with httpx takes a millisecond of the cores that the server needs.

    Args:
        url: the URL of all requests.
    """

    def __init__(self, url: str) -> None:
        self._url = httpx.URL(url)
        self._connection = HTTPConnection(self._url.host, self._url.port, timeout=TIMEOUT)

    def post(self, body: dict[str, Any]) -> httpx.Response:
        """Send a request and return the response.

        Raises:
            OSError, HTTPException: there is none.
        """
        content, kind = json.dumps(body), {"Content-Type": "application/json"}
        try:
            self._connection.request("POST", self._url.path, content, kind)
            response = self._connection.getresponse()
            return httpx.Response(response.status, content=response.read())
        except (OSError, HTTPException):
            self._connection.close()
            raise


class TextClient:
    """Sends requests to a server; threads may share it.

    Args:
        name: the name of the server, for errors.
        url: the URL of its predictions.
        tokenizer: the tokenizer of the model, which makes the texts of prompts.
    """

    def __init__(self, name: str, url: str, tokenizer: PreTrainedTokenizerBase) -> None:
        self._name, self._url, self._tokenizer = name, url, tokenizer
        limits = httpx.Limits(max_connections=None)
        self._client = httpx.Client(timeout=TIMEOUT, limits=limits, trust_env=False)
        self._connection = _Connection(url)

    def body(self, request: GenerationRequest) -> dict[str, Any]:
        """Return the body of a request without a stream."""
        parameters: dict[str, Any] = {
            "max_new_tokens": request.new_tokens,
            "details": True,
            "logprobs": False,
            "return_full_text": False,
        }
        if request.temperature is not None:
            parameters |= {"do_sample": True, "top_k": 0, "seed": request.seed}
            parameters["temperature"] = request.temperature
        return {"inputs": self._tokenizer.decode(request.prompt), "parameters": parameters}

    def generate(self, request: GenerationRequest) -> None:
        """Send a request and wait for the whole text.

        Raises:
            KitError: the response is an error or incomplete, or there is none.
        """
        try:
            answer = self._connection.post(self.body(request))
        except (OSError, HTTPException) as error:
            raise NoResponse(self._name, error, TIMEOUT) from None
        if not answer.is_success:
            raise ErrorResponse(self._name, answer)
        self._check(request, answer.json()[0])

    def stream(self, request: GenerationRequest) -> Generator[float]:
        """Send a request and yield the clock's time of each event.

        A caller that stops early closes the connection.

        Raises:
            KitError: the response is an error or incomplete, or the connection fails.
        """
        last = "{}"
        try:
            for event in self._events({**self.body(request), "stream": True}):
                yield time.perf_counter()
                last = event
        except httpx.TransportError as error:
            raise NoResponse(self._name, error, TIMEOUT) from None
        self._check(request, json.loads(last))

    def read_stream(self, request: GenerationRequest) -> None:
        """Send a request and read its stream to the end."""
        for _ in self.stream(request):
            pass

    def first_token_ms(self, request: GenerationRequest) -> float:
        """Return the milliseconds to the first event of a stream, which is read to its end."""
        start = time.perf_counter()
        first, *_ = self.stream(request)
        return 1000 * (first - start)

    def _events(self, body: dict[str, Any]) -> Iterator[str]:
        with self._client.stream("POST", self._url, json=body) as response:
            if not response.is_success:
                response.read()
                raise ErrorResponse(self._name, response)
            for line in response.iter_lines():
                if line.startswith(EVENT):
                    yield line.removeprefix(EVENT)

    def _check(self, request: GenerationRequest, answer: Any) -> None:
        details = answer.get("details") or {}
        if details.get("generated_tokens") != request.new_tokens:
            raise IncompleteText(self._name, request.new_tokens, answer)


def speed(
    send: Callable[[GenerationRequest], object], requests: Sequence[GenerationRequest], clients: int
) -> Speed:
    """Send requests with a number of clients, each waiting for a response before the next one.

    Raises:
        KitError: a request fails; those that have not begun are not sent.
    """
    start = time.perf_counter()
    with ThreadPoolExecutor(clients) as threads:
        list(threads.map(send, requests))
    return Speed(sum(each.new_tokens for each in requests), time.perf_counter() - start)
