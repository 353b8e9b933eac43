"""OpenAI's `embeddings`, with its path and without."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hf_serve.handlers import protocols
from hf_serve.handlers.errors import BadRequest, RequestError
from hf_serve.handlers.http.request import HttpRequest
from hf_serve.handlers.http.response import HttpResponse
from hf_serve.handlers.protocols.base import BaseProtocol
from hf_serve.handlers.types.request import Request
from tests.handlers.protocols.test_protocols import MODEL
from tests.samples import FINE
from tests.sentences import Sentence, refused
from tests.serving import Served, differences, explanation_of, read_json

EMBEDS = replace(
    MODEL,
    task=replace(MODEL.task, service="embed"),
    parameters={"truncate": {}, "max_length": {}},
)
# Two paths of OpenAI's and infinity's clients, and none.
every_path = pytest.mark.parametrize("path", ["v1/embeddings", "embeddings", ""])


def request_to(path: str, body: Any) -> HttpRequest:
    return HttpRequest({"body": body}, {"url_path": path})


def protocol_of(http_request: HttpRequest) -> BaseProtocol:
    return next(each for each in protocols.create(EMBEDS) if each.recognises(http_request))


def read(path: str, body: Any) -> Sequence[Request]:
    """Return the requests that a body becomes."""
    http_request = request_to(path, body)
    return protocol_of(http_request).parse(http_request).requests


def written(path: str, body: Any, outcomes: Sequence[Any], tokens: int = 0) -> HttpResponse:
    """Return the response to a body, from the outcomes of its requests and their tokens."""
    http_request = request_to(path, body)
    known = protocol_of(http_request)
    parsed = known.parse(http_request)
    for request in parsed.requests:
        assert request.token_count is not None
        request.token_count.tokens = tokens
    return known.write(parsed, outcomes)


@every_path
@pytest.mark.parametrize(
    ("given", "texts"),
    [
        ("a", ["a"]),
        (["a", "b"], ["a", "b"]),
        ([5, 8], [[5, 8]]),
        ([5.0, 8.0], [[5, 8]]),
        ([[5, 8], [9]], [[5, 8], [9]]),
        (["a", {"text": "b"}], ["a", "b"]),
    ],
)
def test_texts_and_token_ids_become_requests(path: str, given: Any, texts: Any) -> None:
    assert [each.inputs for each in read(path, {"input": given, "model": "any"})] == texts


@pytest.mark.parametrize(
    ("settings", "parameters"),
    [
        ({"user": "a", "model": "any"}, {}),
        (
            {"dimensions": 8, "encoding_format": "float"},
            {"dimensions": 8, "encoding_format": "float"},
        ),
        ({"encoding_format": "base64", "modality": "text"}, {"encoding_format": "base64"}),
        ({"encoding_format": None, "dimensions": None}, {}),
        ({"normalize": False}, {"normalize": False}),
        ({"normalized": True}, {"normalize": True}),
        ({"use_activation": False}, {"normalize": False}),
        ({"truncate": False}, {"truncate": False}),
        ({"truncate": "NONE"}, {"truncate": False}),
        ({"truncate": "START"}, {"truncate": True, "truncation_direction": "left"}),
        ({"truncate": "END"}, {"truncate": True, "truncation_direction": "right"}),
        ({"truncation": False}, {"truncate": False}),
        (
            {"truncate": "START", "truncation": True},
            {"truncate": True, "truncation_direction": "left"},
        ),
        ({"output_dimension": 8}, {"dimensions": 8}),
        ({"output_dimension": 8, "dimensions": 8}, {"dimensions": 8}),
        ({"output_dtype": "float"}, {}),
        ({"output_dtype": "int8"}, {"precision": "int8"}),
        (
            {"output_dtype": "ubinary", "encoding_format": "base64"},
            {"precision": "ubinary", "encoding_format": "base64"},
        ),
        ({"embedding_type": ["float"]}, {}),
        ({"embedding_type": "binary"}, {"precision": "binary"}),
        ({"embedding_type": "base64"}, {"encoding_format": "base64"}),
        (
            {"embedding_type": "base64", "output_dtype": "int8"},
            {"encoding_format": "base64", "precision": "int8"},
        ),
        ({"embedding_type": None, "late_chunking": None}, {}),
        ({"input_type": "query", "task": None}, {"input_type": "query"}),
        ({"task": "retrieval.query", "late_chunking": False}, {"task": "retrieval.query"}),
        ({"prompt_name": "s2s", "prompt": "A: "}, {"prompt_name": "s2s", "prompt": "A: "}),
        ({"truncate_prompt_tokens": -1}, {"truncate": True}),
        ({"truncate_prompt_tokens": 4}, {"truncate": True, "max_length": 4}),
    ],
)
def test_settings_become_parameters(settings: Any, parameters: Any) -> None:
    (request,) = read("v1/embeddings", {"input": "a", **settings})
    floats = {"precision": "float32", "encoding_format": "float"}
    assert request.parameters == {**floats, **parameters}


@every_path
def test_embeddings_have_their_place_and_the_tokens_that_were_read(path: str) -> None:
    body = {"input": ["a", "b"], "model": "any"}
    answer = read_json(written(path, body, [[0.1], "zczMPQ=="], tokens=4).body)
    assert answer == {
        "object": "list",
        "data": [
            {"object": "embedding", "index": 0, "embedding": [0.1]},
            {"object": "embedding", "index": 1, "embedding": "zczMPQ=="},
        ],
        "model": "m",
        "usage": {"prompt_tokens": 8, "total_tokens": 8},
    }


@pytest.mark.parametrize(
    ("body", "status", "facts"),
    [
        ([], 400, ["body"]),
        ({}, 400, ["input"]),
        ({"input": []}, 400, ["input"]),
        ({"input": ["a"] * 4}, 413, ["input", "4", "3"]),
        ({"input": "a", "dimensions": 0}, 400, ["dimensions"]),
        ({"input": "a", "encoding_format": "int8"}, 400, ["int8", "encoding_format"]),
        ({"input": "a", "truncate": "LEFT"}, 400, ["truncate", "LEFT"]),
        ({"input": "a", "embedding_type": ["float", "int8"]}, 400, ["embedding_type"]),
        ({"input": "a", "dimensions": 4, "output_dimension": 8}, 400, ["output_dimension"]),
        ({"input": "a", "truncate": "END", "truncation": False}, 400, ["truncation"]),
        (
            {"input": "a", "output_dtype": "int8", "embedding_type": "uint8"},
            400,
            ["output_dtype", "embedding_type"],
        ),
        (
            {"input": "a", "encoding_format": "float", "embedding_type": "base64"},
            400,
            ["encoding_format", "embedding_type"],
        ),
        (
            {"input": "a", "truncate": "NONE", "truncate_prompt_tokens": 4},
            400,
            ["truncate_prompt_tokens"],
        ),
        ({"input": "a", "normalize": True, "normalized": False}, 400, ["normalized"]),
        ({"input": "a", "modality": "audio"}, 400, ["audio", "modality"]),
        ({"input": "a", "modality": "image"}, 422, ["input"]),
        ({"input": [{"image": "a"}]}, 422, ["input"]),
        ({"messages": [{"role": "user", "content": "a"}]}, 422, ["messages"]),
        ({"input": "a", "truncate_prompt_tokens": 17}, 400, ["truncate_prompt_tokens", 17, 16]),
        ({"input": "a", "truncate_prompt_tokens": 0}, 400, ["truncate_prompt_tokens", 0]),
        ({"input": ["a", "b"], "late_chunking": True}, 422, ["late_chunking"]),
    ],
)
def test_a_body_that_cannot_be_answered_is_refused(
    body: Any, status: int, facts: list[str]
) -> None:
    with pytest.raises(RequestError) as caught:
        read("v1/embeddings", body)
    assert (caught.value.status, str(caught.value)) == (status, Sentence(*facts))


def test_one_wrong_text_is_named_in_the_error() -> None:
    outcomes = [[0.1], BadRequest("inputs is empty; send a text.")]
    answer = written("v1/embeddings", {"input": ["a", ""]}, outcomes)
    error = read_json(answer.body)["error"]
    assert (answer.status, error["type"]) == (400, "invalid_request_error")
    assert error["message"] == Sentence("input[1]")


def test_a_text_to_explain_is_no_embedding() -> None:
    chosen = protocol_of(explanation_of({"input": "a"}))
    assert type(chosen).__module__ == "hf_serve.handlers.protocols.legacy"
    http_request = HttpRequest({"body": {}}, {"url_path": "v1/embeddings", "explain": "True"})
    with refused(RequestError, "v1/embeddings"):
        protocol_of(http_request).parse(http_request)


def test_clients_get_float32_whatever_the_yaml_sets(checkpoint: Callable[..., Path]) -> None:
    mode, defaults = "sentence_embedding", {"precision": "int8", "encoding_format": "base64"}
    model = Served(checkpoint(mode), mode, parameters=defaults)
    bodies = [{"input": FINE}, {"input": FINE, "encoding_format": "base64"}]
    numbers, coded = (
        answer["data"][0]["embedding"]
        for _, answer in model.post(*(request_to("v1/embeddings", body) for body in bodies))
    )
    decoded = np.frombuffer(base64.b64decode(coded), dtype="<f4")
    assert decoded == pytest.approx(numbers, abs=1e-5)


def test_late_chunking_reads_the_texts_of_a_body_together(checkpoint: Callable[..., Path]) -> None:
    model = Served(checkpoint("sentence_embedding"), "sentence_embedding")
    chunks = [FINE, "It rains today."]
    body = {"input": chunks, "late_chunking": True}
    wrong = {"input": [FINE, " "], "late_chunking": True}
    (status, answer), (refusal, error) = model.post(
        request_to("v1/embeddings", body), request_to("v1/embeddings", wrong)
    )
    assert (status, refusal) == (200, 400)
    assert [each["index"] for each in answer["data"]] == [0, 1]
    vectors = [each["embedding"] for each in answer["data"]]
    assert not differences(vectors, model.ask({"chunks": chunks}), 1e-6)
    assert answer["usage"]["prompt_tokens"] > len(FINE.split())
    assert error["error"]["message"] == Sentence("input[1]")
