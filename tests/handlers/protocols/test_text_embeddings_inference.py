"""Text-embeddings-inference's paths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from hf_serve.handlers.errors import BadRequest, InternalError, Overloaded, RequestError
from hf_serve.handlers.http.request import HttpRequest
from hf_serve.handlers.http.response import HttpResponse
from hf_serve.handlers.protocols.text_embeddings_inference import UNIT_VECTORS, Protocol
from hf_serve.handlers.telemetry.metrics import Meter
from hf_serve.handlers.types.model_info import Service
from hf_serve.handlers.types.request import Request, TokenIds
from tests.handlers.protocols.test_protocols import MODEL
from tests.samples import FINE, ODD
from tests.sentences import Sentence
from tests.serving import Served, differences, read_json

Load = Callable[..., Served]


def protocol(operation: Service | None) -> Protocol:
    """Return the protocol of a model that takes 3 items a request; embeddings are cut both ways."""
    both: dict[str, Any] = {"truncation_direction": {}} if operation == "embed" else {}
    return Protocol(replace(MODEL, task=replace(MODEL.task, service=operation), parameters=both))


def read(operation: Service, path: str, body: Any) -> Sequence[Request]:
    """Return the requests that a body becomes."""
    return protocol(operation).parse(HttpRequest({"body": body}, {"url_path": path})).requests


def written(operation: Service, path: str, body: Any, outcomes: Sequence[Any]) -> HttpResponse:
    """Return the response to a body, from the outcomes of its requests."""
    known = protocol(operation)
    return known.write(known.parse(HttpRequest({"body": body}, {"url_path": path})), outcomes)


def call(model: Served, path: str, body: Any) -> tuple[int, Any]:
    ((status, answer),) = model.post(HttpRequest({"body": body}, {"url_path": path}))
    return status, answer


@pytest.mark.parametrize(
    ("inputs", "texts"),
    [
        ("a", ["a"]),
        (["a", "b"], ["a", "b"]),
        ([5, 8], [[5, 8]]),
        ([[5, 8], [9]], [[5, 8], [9]]),
        (["a", [5]], ["a", [5]]),
    ],
)
def test_texts_and_token_ids_become_requests(inputs: Any, texts: Any) -> None:
    found = read("embed", "embed", {"inputs": inputs})
    assert [each.inputs for each in found] == texts


@pytest.mark.parametrize(
    ("settings", "parameters"),
    [
        ({}, {"normalize": True}),
        ({"normalize": False, "dimensions": 8}, {"normalize": False, "dimensions": 8}),
        (
            {"truncate": True, "truncation_direction": "Left", "prompt_name": "query"},
            {
                "normalize": True,
                "truncate": True,
                "truncation_direction": "Left",
                "prompt_name": "query",
            },
        ),
        ({"truncate": None, "prompt_name": None}, {"normalize": True}),
        ({"input_type": "query"}, {"normalize": True, "input_type": "query"}),
        (
            {"task": "text-matching", "prompt": "A: "},
            {"normalize": True, "task": "text-matching", "prompt": "A: "},
        ),
    ],
)
def test_settings_become_parameters(settings: Any, parameters: Any) -> None:
    (request,) = read("embed", "embed", {"inputs": "a", **settings})
    assert request.parameters == {**UNIT_VECTORS, **parameters}


def test_vectors_of_tokens_lose_the_list_that_a_pipeline_adds() -> None:
    body = {"inputs": ["a", "b"]}
    answer = written("embed_all", "embed_all", body, [[[[1.0], [2.0]]], [[[3.0]]]])
    assert read_json(answer.body) == [[[1.0], [2.0]], [[3.0]]]


def test_sparse_weights_have_index_and_value() -> None:
    weights = [{"index": 5, "value": 0.5, "token": "a"}]
    answer = written("embed_sparse", "embed_sparse", {"inputs": "a"}, [weights])
    assert read_json(answer.body) == [[{"index": 5, "value": 0.5}]]


def test_a_query_with_texts_is_one_request() -> None:
    body = {"query": "a", "texts": ["b", "c"], "return_text": True, "raw_scores": True}
    (request,) = read("rerank", "rerank", body)
    assert request.inputs == {"query": "a", "texts": ["b", "c"]}
    assert request.parameters == {"return_documents": True, "raw_scores": True}
    ranked = [{"index": 1, "score": 0.9, "text": "c"}, {"index": 0, "score": 0.1, "text": "b"}]
    assert read_json(written("rerank", "rerank", body, [ranked]).body) == ranked


@pytest.mark.parametrize(
    ("operation", "path", "body"),
    [
        ("rerank", "rerank", {"query": "a", "texts": ["b"]}),
        ("embed_all", "embed_all", {"inputs": "a"}),
        ("embed_sparse", "embed_sparse", {"inputs": "a"}),
        ("predict", "predict", {"inputs": "a"}),
    ],
)
def test_texts_are_cut_at_their_end_also_if_a_client_says_so(
    operation: Service, path: str, body: dict[str, Any]
) -> None:
    written_out = read(operation, path, {**body, "truncation_direction": "Right"})
    assert written_out == read(operation, path, body)


SENTENCES = {"source_sentence": "a", "sentences": ["b", "c"]}


def test_sentences_are_compared_by_a_model_that_compares_them() -> None:
    body = {"inputs": SENTENCES, "parameters": {"truncate": True}}
    (request,) = read("similarity", "similarity", body)
    assert (request.inputs, request.parameters) == (SENTENCES, {"truncate": True})
    answer = written("similarity", "similarity", body, [[0.5, 0.2]])
    assert read_json(answer.body) == [0.5, 0.2]


def test_sentences_are_compared_by_their_embeddings() -> None:
    body = {"inputs": SENTENCES, "parameters": {"prompt_name": "query"}}
    requests = read("embed", "similarity", body)
    assert [each.inputs for each in requests] == ["a", "b", "c"]
    assert requests[0].parameters == {**UNIT_VECTORS, "prompt_name": "query"}
    answer = written("embed", "similarity", body, [[0.6, 0.8], [0.0, 1.0], [0.6, 0.8]])
    assert read_json(answer.body) == pytest.approx([0.8, 1.0])


@pytest.mark.parametrize(
    ("operation", "path", "body", "facts"),
    [
        ("embed", "embed", [], ["body"]),
        ("embed", "embed", {}, ["body"]),
        ("embed", "embed", {"inputs": []}, ["inputs"]),
        ("embed", "embed", {"inputs": "a", "normalise": 1}, ["body"]),
        ("embed", "embed", {"inputs": ["a"] * 4}, ["inputs", "4"]),
        ("rerank", "embed", {"inputs": "a"}, ["sequence_classification"]),
        ("embed", "rerank", {"query": "a", "texts": ["b"]}, ["mode"]),
        ("embed", "embed_sparse", {"inputs": "a"}, ["mode"]),
        ("rerank", "rerank", {"texts": ["b"]}, ["body"]),
        ("rerank", "rerank", {"query": "a", "texts": "b"}, ["texts"]),
        ("rerank", "rerank", {"query": "a", "texts": []}, ["texts"]),
        ("rerank", "rerank", {"query": "a", "texts": ["b"] * 4}, ["texts", "4"]),
        ("similarity", "similarity", {"inputs": "a"}, ["inputs"]),
        ("similarity", "similarity", {"inputs": {"sentences": []}}, ["inputs"]),
        (
            "embed",
            "similarity",
            {"inputs": {"source_sentence": "a", "sentences": ["b"] * 4}},
            ["sentences", "4"],
        ),
        ("predict", "predict", {"inputs": ["a", "b", "c"]}, ["inputs", "3"]),
        ("predict", "predict", {"inputs": [["a"]] * 4}, ["inputs", "4"]),
        ("predict", "predict", {"inputs": "a", "raw_scores": 1.5}, ["raw_scores"]),
        ("predict", "predict", {"inputs": "a", "raw_scores": 1}, ["raw_scores"]),
        ("predict", "predict", {"inputs": "a", "truncate": False}, []),
        ("predict", "predict", {"inputs": "a", "truncate": "no"}, ["truncate"]),
        ("predict", "predict", {"inputs": "a", "truncation_direction": "Left"}, []),
        (
            "rerank",
            "rerank",
            {"query": "a", "texts": ["b"], "truncation_direction": "Left"},
            ["texts"],
        ),
        (
            "embed",
            "similarity",
            {"inputs": SENTENCES, "parameters": {"precision": "int8"}},
            ["parameters"],
        ),
        (
            "embed",
            "similarity",
            {"inputs": SENTENCES, "parameters": {"encoding_format": "base64"}},
            ["parameters"],
        ),
        ("embed", "decode", {"ids": "a"}, ["ids"]),
        ("embed", "decode", {"ids": [[1], ["a"]]}, ["ids"]),
        ("embed", "decode", {"ids": [[1]] * 4}, ["ids", "4"]),
    ],
)
def test_a_body_that_cannot_be_answered_is_refused(
    operation: Service, path: str, body: Any, facts: list[str]
) -> None:
    with pytest.raises(RequestError) as caught:
        read(operation, path, body)
    assert str(caught.value) == Sentence(*facts)


def test_one_wrong_text_is_named_in_the_error() -> None:
    outcomes = [[0.1], BadRequest("inputs is empty; send a text.")]
    answer = written("embed", "embed", {"inputs": ["a", ""]}, outcomes)
    error = {"error": "inputs[1] is empty; send a text.", "error_type": "Validation"}
    assert (answer.status, read_json(answer.body)) == (400, error)


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [(Overloaded("busy"), 429, "Overloaded"), (InternalError(ValueError()), 424, "Backend")],
)
def test_an_error_of_the_server_has_teis_status(
    error: RequestError, status: int, kind: str
) -> None:
    answer = written("embed", "embed", {"inputs": "a"}, [error])
    assert (answer.status, read_json(answer.body)["error_type"]) == (status, kind)


@pytest.fixture
def classifier(served: Load) -> Served:
    return served("sequence_classification")


def test_texts_and_pairs_are_classified(classifier: Served) -> None:
    labels = classifier.ask(FINE, top_k=None)
    raw = classifier.ask(FINE, top_k=None, function_to_apply="none")
    pair = classifier.ask({"text": FINE, "text_pair": ODD}, top_k=None)
    for body, expected in (
        ({"inputs": FINE}, labels),
        ({"inputs": FINE, "raw_scores": True}, raw),
        ({"inputs": [FINE, ODD]}, pair),
        ({"inputs": [[FINE], [FINE, ODD]]}, [labels, pair]),
    ):
        status, answer = call(classifier, "predict", body)
        assert status == 200 and not differences(answer, expected, 1e-5)


def test_ids_are_decoded(classifier: Served) -> None:
    tokenizer = classifier.engine.task.checkpoint.tokenizer
    ids = tokenizer(FINE)["input_ids"]
    plain, whole = (tokenizer.decode(ids, skip_special_tokens=skip) for skip in (True, False))
    assert call(classifier, "decode", {"ids": ids}) == (200, [plain])
    body = {"ids": [ids, ids], "skip_special_tokens": False}
    assert call(classifier, "decode", body) == (200, [whole, whole])
    status, error = call(classifier, "decode", {"ids": [ids, [10**6]]})
    assert (status, error["error"].startswith("ids[1]: The prompt has the token")) == (400, True)


def test_token_ids_reach_the_tokenizer_as_such() -> None:
    (request,) = read("embed", "decode", {"ids": [5]})
    assert (request.inputs, request.parameters) == (TokenIds((5,)), {"skip_special_tokens": True})


def test_the_model_is_described(classifier: Served) -> None:
    http_request = HttpRequest({}, {"url_path": "info"})
    (answer,) = classifier.dispatcher.dispatch([http_request], Meter())
    info = read_json(answer.body)
    labels = classifier.engine.task.labels
    assert list(info["model_type"]["classifier"]["label2id"]) == labels
    assert info["auto_truncate"] is True
    embeds = protocol("embed")
    described = embeds.write(embeds.parse(http_request), [])
    assert read_json(described.body)["model_type"] == {"embedding": {}}


def test_one_wrong_text_to_tokenize_is_an_error_of_all(classifier: Served) -> None:
    status, error = call(classifier, "tokenize", {"inputs": [FINE, ""]})
    assert (status, error["error_type"]) == (400, "Validation")
    assert error["error"] == Sentence("inputs[1]")


@pytest.fixture
def ranker(served: Load) -> Served:
    return served("sentence_ranking")


QUERY = {"query": "Who sings?", "texts": [FINE, ODD, "Nina"]}


@pytest.mark.parametrize(
    ("settings", "parameters"),
    [
        ({}, {}),
        ({"raw_scores": True, "return_text": True}, {"raw_scores": True, "return_documents": True}),
        ({"top_n": 1}, {"top_n": 1}),
    ],
)
def test_texts_are_ranked(ranker: Served, settings: Any, parameters: Any) -> None:
    status, ranked = call(ranker, "rerank", {**QUERY, **settings})
    assert status == 200
    assert not differences(ranked, ranker.ask(QUERY, **parameters), 1e-5)


def test_two_texts_to_tokenize_are_no_pair(ranker: Served) -> None:
    status, tokens = call(ranker, "tokenize", {"inputs": [FINE, ODD]})
    assert (status, len(tokens)) == (200, 2)


@pytest.mark.parametrize(
    ("body", "facts"),
    [
        ({**QUERY, "query": ""}, ["query"]),
        ({**QUERY, "query": None}, ["query"]),
        ({**QUERY, "texts": ["a", ""]}, ["texts[1]"]),
        ({**QUERY, "texts": ["a", 5]}, ["texts[1]"]),
        ({**QUERY, "truncate": 5}, ["truncate"]),
    ],
)
def test_a_wrong_text_to_rank_is_named(ranker: Served, body: Any, facts: list[str]) -> None:
    status, error = call(ranker, "rerank", body)
    assert (status, error["error"]) == (400, Sentence(*facts))


@pytest.mark.parametrize("inputs", [FINE, [FINE, ODD]])
def test_texts_are_embedded(served: Load, inputs: Any) -> None:
    model, texts = served("sentence_embedding"), [inputs] if isinstance(inputs, str) else inputs
    status, found = call(model, "embed", {"inputs": inputs, "dimensions": 8})
    expected = [model.ask(text, normalize=True, dimensions=8) for text in texts]
    assert status == 200 and not differences(found, expected, 1e-5)


def test_the_embeddings_of_sentences_are_compared(served: Load) -> None:
    model = served("sentence_embedding")
    inputs = {"source_sentence": FINE, "sentences": [FINE, ODD]}
    status, found = call(model, "similarity", {"inputs": inputs})
    one, other = (model.ask(text, normalize=True) for text in (FINE, ODD))
    cosine = sum(first * second for first, second in zip(one, other, strict=True))
    assert (status, found) == (200, pytest.approx([1.0, cosine], abs=1e-5))


def test_each_token_has_a_vector(served: Load) -> None:
    model = served("feature_extraction")
    status, found = call(model, "embed_all", {"inputs": [FINE, ODD]})
    expected = [vectors for text in (FINE, ODD) for vectors in model.ask(text)]
    assert status == 200 and not differences(found, expected, 1e-5)


def test_words_have_weights(served: Load) -> None:
    model = served("sparse_embedding")
    status, (found,) = call(model, "embed_sparse", {"inputs": FINE})
    expected = [{name: each[name] for name in ("index", "value")} for each in model.ask(FINE)]
    assert status == 200 and not differences(found, expected, 1e-5)


@pytest.mark.parametrize(
    ("mode", "path", "body", "facts"),
    [
        ("sentence_embedding", "embed", {"inputs": [FINE, ""]}, ["inputs[1]"]),
        ("sentence_embedding", "embed", {"inputs": [FINE, 5]}, ["inputs[1]"]),
        ("sentence_embedding", "embed", {"inputs": [10**6]}, ["prompt"]),
        ("sentence_embedding", "embed", {"inputs": FINE, "dimensions": 999}, ["dimensions"]),
        ("sentence_embedding", "embed", {"inputs": FINE, "prompt_name": "x"}, ["prompt_name"]),
        ("feature_extraction", "embed_all", {"inputs": [FINE, None]}, ["inputs[1]"]),
        ("sparse_embedding", "embed_sparse", {"inputs": ""}, ["inputs"]),
    ],
)
def test_a_wrong_text_to_embed_is_named(
    served: Load, mode: str, path: str, body: Any, facts: list[str]
) -> None:
    status, error = call(served(mode), path, body)
    assert (status, error["error"]) == (400, Sentence(*facts))


def test_a_text_that_is_too_long_is_refused_or_cut_as_the_request_says(served: Load) -> None:
    model = served("sentence_embedding")
    text = "Nina sings. " * 200
    status, error = call(model, "embed", {"inputs": [FINE, text], "truncate": False})
    assert (status, error["error"].startswith("inputs[1]: ")) == (413, True)
    left, right = (
        call(model, "embed", {"inputs": f"Ada {text}", "truncation_direction": side})[1]
        for side in ("Left", "Right")
    )
    assert differences(left, right, 1e-5)
