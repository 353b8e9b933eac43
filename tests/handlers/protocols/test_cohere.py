"""Cohere's `embed` and `rerank`, and the `rerank` of Jina and infinity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hf_serve.handlers import protocols
from hf_serve.handlers.errors import BadRequest, RequestError
from hf_serve.handlers.http.request import HttpRequest
from hf_serve.handlers.http.response import HttpResponse
from hf_serve.handlers.protocols.cohere import FLOATS, Protocol
from hf_serve.handlers.types.model_info import Service
from hf_serve.handlers.types.request import Request
from tests.handlers.protocols.test_protocols import MODEL
from tests.samples import FINE, ODD
from tests.sentences import Sentence, refused
from tests.serving import Served, differences, read_json

QUERY = {"query": "a", "documents": ["b", {"text": "c", "id": 5}]}


def protocol(operation: Service) -> Protocol:
    """Return the protocol of a model that takes 3 items a request."""
    return Protocol(replace(MODEL, task=replace(MODEL.task, service=operation)))


def request_to(path: str, body: Any) -> HttpRequest:
    return HttpRequest({"body": body}, {"url_path": path})


def read(path: str, body: Any) -> Sequence[Request]:
    """Return the requests that a body becomes."""
    operation: Service = "rerank" if path.endswith("rerank") else "embed"
    return protocol(operation).parse(request_to(path, body)).requests


def written(path: str, body: Any, outcomes: Sequence[Any], tokens: int = 0) -> HttpResponse:
    """Return the response to a body, from the outcomes of its requests and their tokens."""
    known = protocol("rerank" if path.endswith("rerank") else "embed")
    parsed = known.parse(request_to(path, body))
    for request in parsed.requests:
        assert request.token_count is not None
        request.token_count.tokens = tokens
    return known.write(parsed, outcomes)


@pytest.mark.parametrize(
    ("settings", "parameters"),
    [
        ({}, {}),
        ({"truncate": "NONE"}, {"truncate": False}),
        ({"truncate": "START"}, {"truncate": True, "truncation_direction": "left"}),
        ({"truncate": "END"}, {"truncate": True, "truncation_direction": "right"}),
        ({"output_dimension": 8, "model": "any", "priority": 1}, {"dimensions": 8}),
        ({"input_type": "search_query", "task": None}, {"input_type": "search_query"}),
        ({"prompt_name": "title"}, {"prompt_name": "title"}),
        ({"task": "separation", "prompt": ""}, {"task": "separation", "prompt": ""}),
    ],
)
def test_settings_become_parameters(settings: Any, parameters: Any) -> None:
    (request,) = read("v2/embed", {"texts": ["a"], **settings})
    assert request == Request("a", {**parameters, **FLOATS}, is_batch_item=True)


@pytest.mark.parametrize(
    ("kind", "embedding"),
    [
        ("float", [0.5, -0.25]),
        ("base64", "AAAAPwAAgL4="),
        ("int8", [127, -64]),
        ("uint8", [255, 64]),
        ("binary", [0]),
        ("ubinary", [128]),
    ],
)
def test_a_vector_becomes_an_embedding_of_each_type(kind: str, embedding: Any) -> None:
    body = {"texts": ["a"], "embedding_types": [kind]}
    answer = read_json(written("v2/embed", body, [[0.5, -0.25]]).body)
    assert answer["embeddings"] == {kind: [embedding]}


def test_embeddings_come_by_type_and_each_text_is_computed_once() -> None:
    body = {"texts": ["a", "b"], "embedding_types": ["float", "int8", "float"]}
    assert len(read("v2/embed", body)) == 2
    answer = read_json(written("v2/embed", body, [[0.1], [-0.2]], tokens=3).body)
    assert answer["embeddings"] == {"float": [[0.1], [-0.2]], "int8": [[127], [-127]]}
    assert answer["texts"] == ["a", "b"] and answer["id"]
    assert answer["meta"]["billed_units"] == {"input_tokens": 6}


def test_the_first_version_returns_a_list_of_vectors_by_default() -> None:
    answer = read_json(written("v1/embed", {"texts": ["a"]}, [[0.1]]).body)
    assert (answer["response_type"], answer["embeddings"]) == ("embeddings_floats", [[0.1]])
    body = {"texts": ["a"], "embedding_types": ["float"]}
    answer = read_json(written("v1/embed", body, [[0.1]]).body)
    assert answer["response_type"] == "embeddings_by_type"
    assert read_json(written("v2/embed", {"texts": ["a"]}, [[0.1]]).body)["embeddings"] == {
        "float": [[0.1]]
    }


def test_the_texts_of_inputs_are_embedded() -> None:
    content = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    (request,) = read("v2/embed", {"inputs": [{"content": content}]})
    assert request.inputs == "a\nb"


RANKED = [{"index": 1, "score": 0.9, "text": "c"}, {"index": 0, "score": 0.1, "text": "b"}]


@pytest.mark.parametrize("path", ["v1/rerank", "v2/rerank", "rerank"])
def test_documents_become_one_request(path: str) -> None:
    body = {**QUERY, "top_n": 2, "return_documents": True, "model": "any"}
    (request,) = read(path, body)
    assert request.inputs == {"query": "a", "documents": ["b", "c"]}
    assert request.parameters == {"top_n": 2, "return_documents": True}


def test_the_best_texts_are_counted_as_by_voyage_ai() -> None:
    (request,) = read("v2/rerank", {**QUERY, "top_k": 2, "truncation": True})
    assert request.parameters == {"top_n": 2}
    with refused(RequestError, "truncation"):
        read("v2/rerank", {**QUERY, "truncation": False})


@pytest.mark.parametrize("given", [{"top_k": 2}, {"top_k": None, "truncation": True}])
def test_the_client_of_voyage_ai_reads_the_ranking_in_data(given: dict[str, Any]) -> None:
    answer = read_json(written("v1/rerank", {**QUERY, **given}, [RANKED], tokens=7).body)
    assert answer["data"] == [
        {"index": 1, "relevance_score": 0.9, "document": "c"},
        {"index": 0, "relevance_score": 0.1, "document": "b"},
    ]
    assert "data" not in read_json(written("v1/rerank", QUERY, [RANKED]).body)


@pytest.mark.parametrize(
    ("path", "returned"), [("v1/rerank", True), ("v2/rerank", None), ("rerank", None)]
)
def test_the_clients_of_jina_and_vllm_get_documents_without_asking(
    path: str, returned: bool | None
) -> None:
    (request,) = read(path, QUERY)
    assert request.parameters.get("return_documents") == returned
    (request,) = read(path, {**QUERY, "return_documents": False})
    assert request.parameters["return_documents"] is False


@pytest.mark.parametrize(
    ("path", "document"),
    [("v1/rerank", {"text": "c"}), ("v2/rerank", {"text": "c"}), ("rerank", "c")],
)
def test_a_ranking_has_scores_and_the_documents_that_are_asked_for(
    path: str, document: Any
) -> None:
    answer = read_json(written(path, QUERY, [RANKED], tokens=7).body)
    first = answer["results"][0]
    assert first == {"index": 1, "relevance_score": 0.9, "document": document}
    assert answer["usage"] == {"prompt_tokens": 7, "total_tokens": 7}
    assert (answer["object"], answer["model"]) == ("rerank", "m")
    without = [{"index": 0, "score": 0.1}]
    answer = read_json(written(path, QUERY, [without]).body)
    assert answer["results"] == [{"index": 0, "relevance_score": 0.1}]


@pytest.mark.parametrize(
    ("path", "body", "status", "facts"),
    [
        ("v2/embed", [], 400, ["body"]),
        ("v2/embed", {}, 400, ["body"]),
        ("v2/embed", {"texts": []}, 400, ["texts"]),
        ("v2/embed", {"texts": "a"}, 400, ["a", "texts"]),
        ("v2/embed", {"texts": ["a"] * 4}, 413, ["texts", "4"]),
        ("v2/embed", {"inputs": [{}] * 4}, 413, ["inputs", "4"]),
        ("v2/embed", {"inputs": ["a"]}, 400, ["inputs"]),
        (
            "v2/embed",
            {"inputs": [{"content": [{"type": "image_url"}]}]},
            422,
            ["inputs"],
        ),
        ("v2/embed", {"images": ["a"]}, 422, ["images"]),
        ("v2/embed", {"texts": ["a"], "input_type": 5}, 400, ["input_type", "string"]),
        ("v2/embed", {"texts": ["a"], "embedding_types": []}, 400, ["embedding_types"]),
        ("v2/embed", {"texts": ["a"], "embedding_types": ["a"]}, 400, ["a", "embedding_types.0"]),
        ("v2/embed", {"texts": ["a"], "output_dimension": 0}, 400, ["output_dimension"]),
        ("v2/rerank", {"documents": ["a"]}, 400, ["query"]),
        ("v2/rerank", {"query": "a"}, 400, ["documents"]),
        ("v2/rerank", {"query": "a", "documents": []}, 400, ["documents"]),
        ("v2/rerank", {"query": "a", "documents": ["b"] * 4}, 413, ["documents", "4"]),
        ("v1/rerank", {**QUERY, "rank_fields": ["title"]}, 422, ["rank_fields"]),
        ("v2/rerank", {**QUERY, "max_tokens_per_doc": 9}, 422, ["max_tokens_per_doc"]),
        ("v2/rerank", {**QUERY, "top_n": 0}, 400, ["top_n"]),
        ("v1/rerank", {**QUERY, "top_n": 1, "top_k": 2}, 400, ["top_n", "top_k"]),
        (
            "v1/rerank",
            {**QUERY, "raw_scores": True, "use_activation": True},
            400,
            ["raw_scores", "use_activation"],
        ),
    ],
)
def test_a_body_that_cannot_be_answered_is_refused(
    path: str, body: Any, status: int, facts: list[str]
) -> None:
    with pytest.raises(RequestError) as caught:
        read(path, body)
    assert (caught.value.status, str(caught.value)) == (status, Sentence(*facts))


def test_a_model_of_another_mode_refuses() -> None:
    for known, path in ((protocol("rerank"), "v2/embed"), (protocol("embed"), "v2/rerank")):
        with refused(RequestError, "sequence_classification"):
            known.parse(request_to(path, {"texts": ["a"]}))


def test_one_wrong_text_is_named_in_the_error() -> None:
    body = {"texts": ["a", ""], "embedding_types": ["float", "int8"]}
    wrong = BadRequest("inputs is empty; send a text.")
    answer = written("v2/embed", body, [[0.1], wrong])
    assert answer.status == 400
    assert read_json(answer.body)["message"] == Sentence("texts[1]")


@pytest.mark.parametrize(
    ("path", "body", "module"),
    [
        ("v2/embed", {"texts": ["a"]}, "cohere"),
        ("v1/rerank", QUERY, "cohere"),
        ("rerank", QUERY, "cohere"),
        ("rerank", {"query": "a", "texts": ["b"]}, "text_embeddings_inference"),
        ("v1/embeddings", {"input": "a"}, "openai"),
        ("v2/models/m/infer", {"inputs": []}, "open_inference"),
        ("v1/models/m:predict", {"instances": ["a"]}, "kserve_v1"),
    ],
)
def test_paths_that_are_alike_have_their_own_protocols(path: str, body: Any, module: str) -> None:
    known = protocols.create(MODEL)
    chosen = next(each for each in known if each.recognises(request_to(path, body)))
    assert type(chosen).__module__ == f"hf_serve.handlers.protocols.{module}"


@pytest.fixture
def ranker(served: Callable[..., Served]) -> Served:
    return served("sentence_ranking")


def test_documents_are_ranked(ranker: Served) -> None:
    body = {"query": "Who sings?", "documents": [FINE, {"text": ODD}, "Nina"], "top_n": 2}
    ((status, answer),) = ranker.post(request_to("v2/rerank", body))
    expected = ranker.ask({"query": "Who sings?", "texts": [FINE, ODD, "Nina"]}, top_n=2)
    found = [
        {"index": each["index"], "score": each["relevance_score"]} for each in answer["results"]
    ]
    assert status == 200 and not differences(found, expected, 1e-5)
    tokenizer = ranker.engine.task.checkpoint.tokenizer
    read = sum(len(tokenizer("Who sings?", text)["input_ids"]) for text in (FINE, ODD, "Nina"))
    assert answer["usage"]["total_tokens"] == read


def test_a_wrong_document_is_named(ranker: Served) -> None:
    body = {"query": "Who sings?", "documents": ["a", {"title": "b"}]}
    ((status, answer),) = ranker.post(request_to("v2/rerank", body))
    assert (status, answer["message"]) == (400, Sentence("documents[1]"))


@pytest.mark.parametrize("kind", ["float", "base64", "int8", "uint8", "binary", "ubinary"])
def test_embeddings_are_those_of_the_task(served: Callable[..., Served], kind: str) -> None:
    model = served("sentence_embedding")
    ((status, answer),) = model.post(
        request_to("v2/embed", {"texts": [FINE], "embedding_types": [kind]})
    )
    own = {"float": {}, "base64": {"encoding_format": "base64"}}.get(kind, {"precision": kind})
    assert status == 200
    assert not differences(answer["embeddings"], {kind: [model.ask(FINE, **own)]}, 1e-5)


def test_defaults_of_the_yaml_change_no_types(checkpoint: Callable[..., Path]) -> None:
    mode, defaults = "sentence_embedding", {"encoding_format": "base64", "precision": "int8"}
    model = Served(checkpoint(mode), mode, parameters=defaults, max_request_rows=1)
    body = {"texts": [FINE], "embedding_types": ["float", "binary"]}
    ((status, answer),) = model.post(request_to("v2/embed", body))
    assert status == 200
    assert [type(number) for number in answer["embeddings"]["float"][0]] == [float] * 32
