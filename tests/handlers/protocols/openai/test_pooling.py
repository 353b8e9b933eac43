"""vLLM's endpoints `score`, `classify` and `pooling`."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hf_serve.handlers.http.request import HttpRequest
from tests.samples import FINE, ODD
from tests.sentences import Sentence
from tests.serving import Served, differences

Load = Callable[..., Served]
EMBEDDING, RANKING, TOKENS = "sentence_embedding", "sentence_ranking", "feature_extraction"
CLASSIFICATION, SIMILARITY, COLBERT = (
    "sequence_classification",
    "sentence_similarity",
    "late_interaction",
)
QUERY, OTHERS = "Who sings?", [FINE, ODD, "Nina"]


def send(model: Served, path: str, body: Any) -> tuple[int, Any]:
    headers = {"url_path": path, "Content-Type": "application/json"}
    ((status, answer),) = model.post(HttpRequest({"body": body}, headers))
    return status, answer


def ask(model: Served, path: str, /, **body: Any) -> Any:
    status, answer = send(model, path, body)
    assert status == 200, answer
    return answer


def scores(model: Served, **body: Any) -> list[float]:
    return [each["score"] for each in ask(model, "score", **body)["data"]]


def refuse(model: Served, path: str, body: Any) -> tuple[int, str]:
    status, answer = send(model, path, body)
    assert answer["error"].keys() == {"message", "type", "param", "code"}
    return status, answer["error"]["message"]


@pytest.mark.parametrize("path", ["score", "v1/score"])
def test_a_reranker_scores_pairs(served: Load, path: str) -> None:
    model = served(RANKING)
    answer = ask(model, path, text_1=QUERY, text_2=OTHERS, model="any")
    expected = [model.ask([QUERY, text])["score"] for text in OTHERS]
    found = [each.pop("score") for each in answer["data"]]
    assert not differences(found, expected, 1e-5)
    assert answer["data"] == [{"index": index, "object": "score"} for index in range(3)]
    assert (answer["object"], answer["model"]) == ("list", model.engine.describe().name)
    assert answer["id"].startswith("score-") and answer["created"] > 0
    tokenizer = model.engine.task.checkpoint.tokenizer
    tokens = sum(len(tokenizer(QUERY, text)["input_ids"]) for text in OTHERS)
    assert answer["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}


@pytest.mark.parametrize("mode", [RANKING, EMBEDDING, SIMILARITY, COLBERT])
def test_one_text_is_scored_with_each_of_several_and_several_pair_by_pair(
    served: Load, mode: str
) -> None:
    model = served(mode)
    (one,) = scores(model, text_1=QUERY, text_2=FINE)
    several = scores(model, text_1=QUERY, text_2=OTHERS)
    pairs = scores(model, text_1=[QUERY, FINE, ODD], text_2=OTHERS)
    assert len(several) == len(pairs) == 3
    expected = [scores(model, text_1=a, text_2=[b])[0] for a, b in ((FINE, ODD), (ODD, "Nina"))]
    assert not differences([one, *pairs], [several[0], several[0], *expected], 1e-5)
    assert not differences(scores(model, text_1=[QUERY], text_2=OTHERS), several, 1e-5)
    assert len(set(several)) == 3


def test_an_embedding_model_scores_cosines(served: Load) -> None:
    model = served(EMBEDDING)
    first, *others = (np.array(model.ask(text)) for text in (QUERY, *OTHERS))
    expected = [
        float(first @ other / np.linalg.norm(first) / np.linalg.norm(other)) for other in others
    ]
    assert not differences(scores(model, text_1=QUERY, text_2=OTHERS), expected, 1e-5)


def test_a_model_of_similarities_and_colbert_score_as_on_their_own_paths(served: Load) -> None:
    model = served(SIMILARITY)
    own = model.ask({"source_sentence": QUERY, "sentences": OTHERS})
    assert not differences(scores(model, text_1=QUERY, text_2=OTHERS), own, 1e-5)
    model = served(COLBERT)
    ranking = model.ask({"query": QUERY, "texts": OTHERS})
    own = [each["score"] for each in sorted(ranking, key=lambda each: int(each["index"]))]
    assert not differences(scores(model, text_1=QUERY, text_2=OTHERS), own, 1e-5)


@pytest.mark.parametrize(
    ("first", "second"), [("data_1", "data_2"), ("queries", "documents"), ("queries", "items")]
)
def test_the_sides_have_the_names_of_each_version_of_vllm(
    served: Load, first: str, second: str
) -> None:
    model = served(RANKING)
    expected = scores(model, text_1=QUERY, text_2=OTHERS)
    assert not differences(scores(model, **{first: QUERY, second: OTHERS}), expected, 1e-5)


@pytest.mark.parametrize("name", ["use_activation", "activation", "softmax"])
def test_a_score_is_a_logit_without_the_activation(served: Load, name: str) -> None:
    model = served(RANKING)
    expected = model.ask([QUERY, FINE], raw_scores=True)["score"]
    (found,) = scores(model, text_1=QUERY, text_2=FINE, **{name: False})
    assert found == pytest.approx(expected, abs=1e-5)
    assert scores(model, text_1=QUERY, text_2=FINE, **{name: True}) != [found]


@pytest.mark.parametrize("path", ["classify", "v1/classify"])
def test_a_classifier_returns_the_probability_of_each_class(served: Load, path: str) -> None:
    model = served(CLASSIFICATION)
    labels = model.engine.describe().labels
    answer = ask(model, path, input=[FINE, ODD])
    for index, (entry, text) in enumerate(zip(answer["data"], (FINE, ODD), strict=True)):
        best, *_ = own = model.ask(text, top_k=None)
        by_label = {each["label"]: each["score"] for each in own}
        assert (entry["index"], entry["label"]) == (index, best["label"])
        assert entry["num_classes"] == len(labels)
        assert not differences(entry["probs"], [by_label[label] for label in labels], 1e-5)
    assert answer["id"].startswith("classify-") and answer["usage"]["prompt_tokens"] > 0
    (single,) = ask(model, path, input=ODD)["data"]
    assert not differences({**single, "index": 1}, answer["data"][1], 1e-5)


def test_a_classifier_returns_logits_without_the_activation(served: Load) -> None:
    model = served(CLASSIFICATION)
    ((entry,), (same,)) = (
        ask(model, "classify", input=FINE, **{name: False})["data"]
        for name in ("use_activation", "softmax")
    )
    logits = model.ask(FINE, top_k=None, function_to_apply="none")
    by_label = {each["label"]: each["score"] for each in logits}
    expected = [by_label[label] for label in model.engine.describe().labels]
    assert not differences(entry["probs"], expected, 1e-5) and same == entry


def test_labels_that_repeat_have_no_order(served: Load, monkeypatch: Any) -> None:
    model = served(CLASSIFICATION)
    monkeypatch.setattr(model.engine.task, "labels", ["a"] * len(model.engine.task.labels))
    fresh = Served.of(model.engine)
    assert refuse(fresh, "classify", {"input": FINE}) == (422, Sentence("label"))


@pytest.mark.parametrize("path", ["pooling", "v1/pooling"])
def test_an_embedding_model_pools_each_text_to_its_vector(served: Load, path: str) -> None:
    model = served(EMBEDDING)
    answer = ask(model, path, input=[FINE, ODD], task="embed")
    assert answer["id"].startswith("pool-") and answer["usage"]["prompt_tokens"] > 0
    for index, (entry, text) in enumerate(zip(answer["data"], (FINE, ODD), strict=True)):
        assert (entry["index"], entry["object"]) == (index, "pooling")
        assert not differences(entry["data"], model.ask(text), 1e-5)
    ids = model.engine.task.checkpoint.tokenizer(FINE)["input_ids"]
    (of_ids,) = ask(model, path, input=ids)["data"]
    assert not differences(of_ids["data"], model.ask(FINE), 1e-5)
    (short,) = ask(model, path, input=FINE, dimensions=4, normalize=True)["data"]
    assert not differences(short["data"], model.ask(FINE, dimensions=4, normalize=True), 1e-5)


@pytest.mark.parametrize("mode", [TOKENS, COLBERT])
def test_tokens_are_pooled_to_a_vector_each(served: Load, mode: str) -> None:
    model = served(mode)
    own = model.ask(FINE)
    expected = own[0] if mode == TOKENS else own
    (entry,) = ask(model, "pooling", input=FINE, task="token_embed")["data"]
    assert not differences(entry["data"], expected, 1e-5)


@pytest.mark.parametrize("mode", [EMBEDDING, TOKENS, COLBERT])
def test_base64_has_the_numbers_in_float32(served: Load, mode: str) -> None:
    model = served(mode)
    (plain,) = ask(model, "pooling", input=FINE)["data"]
    (coded,) = ask(model, "pooling", input=FINE, encoding_format="base64")["data"]
    numbers = np.frombuffer(base64.b64decode(coded["data"]), dtype="<f4")
    expected = np.array(plain["data"])
    assert numbers.reshape(expected.shape) == pytest.approx(expected, abs=1e-5)


def test_the_yaml_changes_no_types(checkpoint: Callable[..., Any]) -> None:
    defaults = {"encoding_format": "base64", "precision": "int8", "normalize": False}
    model = Served(checkpoint(EMBEDDING), EMBEDDING, parameters=defaults)
    (entry,) = ask(model, "pooling", input=FINE)["data"]
    assert isinstance(entry["data"][0], float)
    assert scores(model, text_1=FINE, text_2=FINE) == pytest.approx([1], abs=1e-5)


LONG = "Nina sings in the bar and it rains today. " * 40


@pytest.mark.parametrize(
    ("mode", "path", "body"),
    [
        (EMBEDDING, "v1/embeddings", {"input": LONG}),
        (EMBEDDING, "pooling", {"input": LONG}),
        (EMBEDDING, "score", {"text_1": LONG, "text_2": LONG}),
        (TOKENS, "pooling", {"input": LONG}),
        (CLASSIFICATION, "classify", {"input": LONG}),
        (RANKING, "score", {"text_1": "Who?", "text_2": LONG}),
        (RANKING, "v2/rerank", {"query": "Who?", "documents": [LONG]}),
        (SIMILARITY, "score", {"text_1": LONG, "text_2": LONG}),
    ],
)
def test_texts_are_cut_to_the_number_of_tokens_that_a_body_names(
    served: Load, mode: str, path: str, body: Any
) -> None:
    model = served(mode)
    limit = model.engine.describe().limits.max_length or 0
    rows = 2 if "text_1" in body and mode != RANKING else 1
    for tokens, read in ((12, 12), (limit, limit), (-1, limit)):
        answer = ask(model, path, **body, truncate_prompt_tokens=tokens)
        assert answer["usage"]["total_tokens"] == rows * read
    # One token is a special one, which leaves no text in some modes.
    assert send(model, path, {**body, "truncate_prompt_tokens": 1})[0] in (200, 400)
    for tokens in (0, limit + 1, -2):
        status, answer = send(model, path, {**body, "truncate_prompt_tokens": tokens})
        error = answer.get("error") or answer
        facts = [tokens, limit] if tokens > limit else [tokens]
        assert (status, error["message"]) == (400, Sentence("truncate_prompt_tokens", *facts))


@pytest.mark.parametrize(
    ("mode", "body", "place"),
    [
        (EMBEDDING, {"text_1": LONG, "text_2": "a"}, "text_1"),
        (EMBEDDING, {"text_1": "a", "text_2": ["a", LONG]}, "text_2[1]"),
        (EMBEDDING, {"queries": ["a", LONG], "items": ["a", "b"]}, "queries[1]"),
        (RANKING, {"text_1": "a", "text_2": ["a", LONG]}, "text_2[1]"),
        (RANKING, {"text_1": ["a", "b"], "documents": ["a", LONG]}, "documents[1]"),
    ],
)
def test_a_text_that_is_too_long_is_named(served: Load, mode: str, body: Any, place: str) -> None:
    status, error = refuse(served(mode, truncation=False), "score", body)
    assert (status, error) == (400, Sentence(place, 128))
    with_tokens = {**body, "truncate_prompt_tokens": 9}
    assert send(served(mode, truncation=False), "score", with_tokens)[0] == 200


@pytest.mark.parametrize(
    ("mode", "path", "body", "status", "facts"),
    [
        (RANKING, "score", {}, 400, ["text_1"]),
        (RANKING, "score", {"text_1": "a"}, 400, ["text_2"]),
        (RANKING, "score", {"text_1": "a", "queries": "a", "text_2": "b"}, 400, ["queries"]),
        (RANKING, "score", {"text_1": [], "text_2": "b"}, 400, ["text_1"]),
        (RANKING, "score", {"text_1": "a", "text_2": []}, 400, ["text_2"]),
        (RANKING, "score", {"text_1": ["a", "b"], "text_2": "b"}, 400, ["text_1", 2, 1]),
        (RANKING, "score", {"text_1": "a", "text_2": ["b", ""]}, 400, ["text_2[1]"]),
        (RANKING, "score", {"text_1": "a", "text_2": ["b", 5]}, 400, ["text_2[1]"]),
        (RANKING, "score", {"text_1": "a", "text_2": {"content": []}}, 400, ["text_2"]),
        (RANKING, "score", {"queries": "a", "items": ["b"] * 2000}, 413, ["items", 2000]),
        (
            RANKING,
            "score",
            {"text_1": "a", "text_2": "b", "instruction": "c"},
            422,
            ["instruction"],
        ),
        (RANKING, "classify", {"input": "a"}, 422, [RANKING]),
        (RANKING, "pooling", {"input": "a"}, 422, [RANKING]),
        (CLASSIFICATION, "score", {"text_1": "a", "text_2": "b"}, 422, [CLASSIFICATION]),
        (CLASSIFICATION, "classify", {"input": []}, 400, ["input"]),
        (CLASSIFICATION, "classify", {"input": ["a", ""]}, 400, ["input[1]"]),
        (CLASSIFICATION, "classify", {"input": [5, 6]}, 400, ["input[0]"]),
        (CLASSIFICATION, "classify", {"input": ["a"] * 2000}, 413, ["input", 2000]),
        (CLASSIFICATION, "classify", {"input": "a", "raw_scores": True}, 422, ["raw_scores"]),
        (CLASSIFICATION, "classify", {"messages": [{"role": "user"}]}, 422, ["messages"]),
        (EMBEDDING, "pooling", {"input": ["a", ""]}, 400, ["input[1]"]),
        (EMBEDDING, "pooling", {"input": "a", "task": "token_embed"}, 422, ["token_embed"]),
        (EMBEDDING, "pooling", {"input": "a", "task": "other"}, 400, ["task"]),
        (EMBEDDING, "pooling", {"input": "a", "embed_dtype": "float16"}, 422, ["embed_dtype"]),
        (TOKENS, "pooling", {"input": "a", "task": "embed"}, 422, ["embed", "token_embed"]),
        (TOKENS, "pooling", {"input": "a", "dimensions": 4}, 422, ["dimensions"]),
        (TOKENS, "pooling", {"input": "a", "use_activation": True}, 422, ["normalize"]),
        (TOKENS, "pooling", {"input": [5, 6]}, 400, ["input"]),
    ],
)
def test_a_body_that_cannot_be_answered_is_refused(
    served: Load, mode: str, path: str, body: Any, status: int, facts: list[Any]
) -> None:
    assert refuse(served(mode), path, body) == (status, Sentence(*facts))


def test_a_reranker_with_several_labels_has_no_score(served: Load, monkeypatch: Any) -> None:
    model = served(RANKING)
    monkeypatch.setattr(model.engine.task, "labels", ["a", "b", "c"])
    found = refuse(Served.of(model.engine), "score", {"text_1": "a", "text_2": "b"})
    assert found == (422, Sentence(3))


def test_explanations_are_refused(served: Load) -> None:
    http_request = HttpRequest(
        {"body": {"input": FINE}}, {"url_path": "classify", "explain": "True"}
    )
    ((status, answer),) = served(CLASSIFICATION).post(http_request)
    assert (status, answer["error"]["message"]) == (422, Sentence("classify"))
