"""A body costs a small multiple of its size, whatever is in it: what is too much is not built."""

from __future__ import annotations

import gzip
import json
import struct
import tracemalloc
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from hf_serve.handlers.dispatcher import Dispatcher
from hf_serve.handlers.http.limits import TORCHSERVE_BYTES
from hf_serve.handlers.http.request import HttpRequest
from hf_serve.handlers.http.response import MAX_HEADER, HttpResponse
from hf_serve.handlers.telemetry.metrics import Meter
from tests.serving import Served, read_json

SIZE = 600_000
# Numbers cost most: a list has 8 bytes for each, and a number of two digits can have 32.
MULTIPLE = 16
JSON = {"Content-Type": "application/json"}
LINES = {"Content-Type": "application/jsonlines"}
CSV = {"Content-Type": "text/csv"}
GZIP = {**JSON, "Content-Encoding": "gzip"}
PROMPTS = {**JSON, "url_path": "v1/completions"}
CHAT = {**JSON, "url_path": "v1/chat/completions"}
RESPONSES = {**JSON, "url_path": "v1/responses"}
GENERATE = {**JSON, "url_path": "generate"}
TOKENIZE = {**JSON, "url_path": "tokenize"}
DETOKENIZE = {**JSON, "url_path": "detokenize"}
LENGTH = "Inference-Header-Content-Length"


def filled(start: bytes, unit: bytes, end: bytes = b"") -> bytes:
    """Return a body that repeats a unit, without the comma after the last one."""
    return start + (unit * (SIZE // len(unit))).rstrip(b",") + end


def numbered(start: bytes, end: bytes) -> bytes:
    """Return a body with an object of many keys."""
    return start + json.dumps(dict.fromkeys(map(str, range(SIZE // 14)), 0)).encode() + end


def in_bytes(datatype: str, count: int, data: bytes) -> tuple[bytes, dict[str, str]]:
    """Return a body and its headers with one tensor after the JSON."""
    parameters = {"binary_data_size": len(data)}
    tensor = {"name": "args", "datatype": datatype, "shape": [count], "parameters": parameters}
    head = json.dumps({"inputs": [tensor]}).encode()
    return head + data, {LENGTH: str(len(head))}


def tensor(data: bytes, count: int = 1) -> bytes:
    start = f'{{"inputs":[{{"name":"args","datatype":"INT8","shape":[{count}],"data":'
    return start.encode() + data + b"}]}"


# Made by the tests that send them: some take long to compress.
COSTLY: dict[str, Callable[[], tuple[bytes, Mapping[str, str]]]] = {
    "lists": lambda: (filled(b'{"inputs":[', b"[],", b"]}"), JSON),
    "objects": lambda: (filled(b'{"inputs":[', b'{"":0},', b"]}"), JSON),
    "texts": lambda: (filled(b"[", b'"ab",', b"]"), {}),
    "compressed lists": lambda: (gzip.compress(filled(b'{"inputs":[', b"[],", b"]}")), GZIP),
    "a long key": lambda: (filled(b'{"', b"k", b'":1}'), JSON),
    "a compressed key": lambda: (gzip.compress(filled(b'{"', b"k", b'":1}')), GZIP),
    "a compressed text of 64 MB": lambda: (gzip.compress(bytes(2**26)), GZIP),
    "compressed bodies": lambda: (gzip.compress(b"", mtime=0) * (SIZE // 20), GZIP),
    "nested lists": lambda: (filled(b"", b"[") + filled(b"", b"]"), JSON),
    "a literal": lambda: (b"{'a':[" + b"[]," * 30_000 + b"]}", {}),
    "many keys": lambda: (numbered(b"", b""), JSON),
    "parameters": lambda: (numbered(b'{"inputs":"a","parameters":', b"}"), JSON),
    "parameters of all instances": lambda: (
        numbered(b'{"instances":[' + b'"a",' * 127 + b'"a"],"parameters":', b"}"),
        JSON,
    ),
    "a list as a parameter": lambda: (
        filled(b'{"inputs":"a","parameters":{"stop":[', b"1,", b"]}}"),
        JSON,
    ),
    "a target": lambda: (
        filled(b'{"inputs":"a","target":[', b"1,", b"]}"),
        {**JSON, "explain": "True"},
    ),
    "lines": lambda: (filled(b"", b"1\n"), LINES),
    "lines of lists": lambda: (filled(b"", b'{"inputs":["a","a","a","a","a","a","a"]}\n'), LINES),
    "empty lines": lambda: (filled(b"", b"\n"), LINES),
    "rows of a table": lambda: (filled(b"", b"a\n"), CSV),
    "columns of a row": lambda: (filled(b"", b"ab,"), CSV),
    "columns of a row of two lines": lambda: (
        filled(b"", b"ab,") + b'"\n",' + filled(b"", b"ab,"),
        CSV,
    ),
    "empty rows": lambda: (filled(b"", b"\n"), CSV),
    "prompts": lambda: (filled(b'{"prompt":[', b'"a",', b"]}"), PROMPTS),
    "empty prompts": lambda: (filled(b'{"prompt":[', b"[],", b"]}"), PROMPTS),
    "prompts of numbers and a text": lambda: (filled(b'{"prompt":[', b"1,", b',"a"]}'), PROMPTS),
    "prompts of fractions": lambda: (filled(b'{"prompt":[', b"0.5,", b"]}"), PROMPTS),
    "messages": lambda: (filled(b'{"messages":[', b"{},", b"]}"), CHAT),
    "messages of numbers": lambda: (filled(b'{"messages":[', b"0,", b"]}"), CHAT),
    "stop texts of numbers": lambda: (filled(b'{"prompt":"a","stop":[', b"0,", b"]}"), PROMPTS),
    "input messages": lambda: (filled(b'{"input":[', b"{},", b"]}"), RESPONSES),
    "input messages of numbers": lambda: (filled(b'{"input":[', b"0,", b"]}"), RESPONSES),
    "parts of an input message": lambda: (
        filled(b'{"input":[{"role":"user","content":[', b"0,", b"]}]}"),
        RESPONSES,
    ),
    "a prompt": lambda: (filled(b'{"inputs":"', b"a ", b'"}'), GENERATE),
    "texts to tokenize": lambda: (filled(b'{"inputs":[', b'"a",', b"]}"), TOKENIZE),
    "a text to tokenize": lambda: (filled(b'{"prompt":"', b"a ", b'"}'), TOKENIZE),
    "messages to tokenize": lambda: (filled(b'{"messages":[', b"0,", b"]}"), TOKENIZE),
    "ids": lambda: (filled(b'{"tokens":[', b"5,", b"]}"), DETOKENIZE),
    "ids that are fractions": lambda: (filled(b'{"tokens":[', b"0.5,", b"]}"), DETOKENIZE),
    "elements": lambda: (tensor(filled(b"[", b"1,", b"]")), JSON),
    "elements of another number": lambda: (tensor(filled(b"[", b"1,", b"]"), 10**12), JSON),
    "a shape": lambda: (
        filled(b'{"inputs":[{"name":"a","datatype":"INT8","data":[],"shape":[', b"-1,", b"]}]}"),
        JSON,
    ),
    "empty elements in bytes": lambda: in_bytes("BYTES", SIZE // 4, bytes(SIZE)),
    "more elements in bytes": lambda: in_bytes("BYTES", 1, struct.pack("<I", 2) * 2 + bytes(SIZE)),
    "numbers in bytes": lambda: in_bytes("INT8", SIZE, bytes(SIZE)),
    "an id": lambda: (filled(b'{"id":"', b"x", b'","inputs":[]}'), JSON),
}


def cost(function: Callable[[], Any]) -> tuple[Any, int]:
    """Return the result of a call, and the most memory it needed at a time."""
    tracemalloc.start()
    try:
        return function(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture(scope="module")
def dispatcher(served: Callable[..., Served]) -> Dispatcher:
    return served("text_generation").dispatcher


def send(dispatcher: Dispatcher, body: bytes, headers: Mapping[str, str]) -> HttpResponse:
    (response,) = dispatcher.dispatch([HttpRequest({"body": body}, headers)], Meter())
    return response


@pytest.mark.timeout(60)  # It takes a second; what grows with the square of a body takes minutes.
@pytest.mark.parametrize("name", COSTLY)
def test_a_body_costs_a_small_multiple_of_its_size(dispatcher: Dispatcher, name: str) -> None:
    body, headers = COSTLY[name]()
    unpacked = TORCHSERVE_BYTES if "Content-Encoding" in headers else len(body)
    response, peak = cost(lambda: send(dispatcher, body, headers))
    assert response.status in (400, 413, 422), response.body[:200]
    assert peak < MULTIPLE * unpacked + 2**21, f"{peak:,} bytes"
    check_short(response)


def check_short(response: HttpResponse) -> None:
    """Check that an error is short, in its body and in its headers."""
    assert len(response.body) <= 2000
    assert all(len(value) <= MAX_HEADER for value in response.headers.values())
    assert read_json(response.body)


LONG = "k" * 20_000
QUOTED: dict[str, tuple[Any, Mapping[str, str]]] = {
    "a key": ({LONG: 1}, {}),
    "a key of an item": ({"instances": [{LONG: 1}]}, {}),
    "a key beside the inputs": ({"inputs": "a", LONG: 1}, {}),
    "many keys": ({f"{number}{LONG}": 1 for number in range(90)}, {}),
    "a parameter": ({"inputs": "a", "parameters": {LONG: 1}}, {}),
    "a value": ({"inputs": "a", "parameters": {"top_k": LONG}}, {}),
    "a method": ({"inputs": "a", "parameters": {"method": LONG}}, {"explain": "True"}),
    "a token": ({"prompt": [10**4000]}, PROMPTS),
    "a role": ({"messages": [{"role": LONG, "content": "a"}]}, CHAT),
    "an item of an input": ({"input": [{"type": LONG}]}, RESPONSES),
    "a part of an input": (
        {"input": [{"role": "user", "content": [{"type": LONG}]}]},
        RESPONSES,
    ),
    "a setting of a response": ({"input": "a", "temperature": LONG}, RESPONSES),
    "a key of a prompt": ({"inputs": "a", LONG: 1}, GENERATE),
    "a key of a text to tokenize": ({"inputs": "a", LONG: 1}, TOKENIZE),
    "an id": ({"tokens": [10**4000]}, DETOKENIZE),
    "a tensor": ({"inputs": [{"name": LONG, "datatype": "BYTES", "shape": [1], "data": [1]}]}, {}),
    "tensors": (
        {
            "inputs": [
                {"name": f"{number}{LONG}", "datatype": "BYTES", "shape": [1], "data": ["a"]}
                for number in range(90)
            ]
        },
        {},
    ),
    "a shape": (
        {"inputs": [{"name": "a", "datatype": "INT8", "shape": [10**4000], "data": []}]},
        {},
    ),
    "a datatype": ({"inputs": [{"name": "a", "datatype": LONG, "shape": [1], "data": [1]}]}, {}),
    "an output": (
        {
            "inputs": [{"name": "a", "datatype": "BYTES", "shape": [1], "data": ["a"]}],
            "outputs": [{"name": LONG}],
        },
        {},
    ),
    "a path": ({}, {"url_path": f"v2/models/{LONG}/infer"}),
    "a path of another protocol": ({}, {"url_path": f"v1/{LONG}"}),
    "a content encoding": (b"a", {"Content-Encoding": LONG}),
    "a character set": (b"a", {"Content-Type": f"text/plain; charset={LONG}"}),
}


@pytest.mark.parametrize("name", QUOTED)
def test_what_an_error_quotes_is_short(dispatcher: Dispatcher, name: str) -> None:
    content, headers = QUOTED[name]
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    response = send(dispatcher, body, {**JSON, **headers})
    assert 400 <= response.status < 500
    check_short(response)


@pytest.mark.parametrize("value", ["1e400", "NaN", "-Infinity", "9" * 5000, "9" * 4000])
def test_a_number_that_no_model_takes_is_refused(dispatcher: Dispatcher, value: str) -> None:
    for body in (
        f'{{"inputs": {value}}}',
        f'{{"inputs": "a", "parameters": {{"top_k": {value}, "max_new_tokens": {value}}}}}',
        f'{{"instances": ["a", {value}], "parameters": {{"seed": {value}}}}}',
        f'{{"prompt": "a", "max_tokens": {value}}}',
        f'{{"prompt": [{value}], "max_tokens": 2}}',
        f'{{"inputs": "a", "stream": {value}}}',
    ):
        response = send(dispatcher, body.encode(), JSON)
        assert 400 <= response.status < 500, response.body[:200]
        check_short(response)
