"""Rerankers of sentence-transformers' modules and of causal models: prompts, limits, explanations.

`tests/reference/test_rerankers.py` compares their scores.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from hf_serve.handlers.errors import RequestError
from hf_serve.handlers.http.request import HttpRequest
from hf_serve.handlers.tasks import sentence_ranking
from hf_serve.handlers.telemetry.metrics import Meter
from hf_serve.handlers.types.request import Request
from tests import tiny_adapters
from tests.reference.rerankers import write
from tests.sentences import Sentence
from tests.serving import Served, explanation_of

MODE = "sentence_ranking"
QUERY, SONG, RAIN = "Who sings in Paris?", "Nina sings in Paris.", "It rains today."
LONG = "Nina sings near the river. " * 60
WEATHER = {"instruction": "Find the weather."}
Load = Callable[..., Served]


@pytest.fixture(scope="module")
def reranker(tmp_path_factory: pytest.TempPathFactory) -> Load:
    """A tiny reranker of a kind."""
    folder = tmp_path_factory.mktemp("rerankers")

    @cache
    def load(kind: str, **handler: Any) -> Served:
        place = folder / kind
        return Served(place if place.exists() else write(place, kind), MODE, **handler)

    return load


def ranking(*texts: str, query: str = QUERY) -> dict[str, Any]:
    return {"query": query, "texts": list(texts or (SONG, RAIN))}


@pytest.mark.parametrize(("kind", "rows"), [("qwen3", 2), ("zerank", 1)])
def test_the_head_of_a_causal_model_has_the_rows_of_the_tokens_alone(
    reranker: Load, kind: str, rows: int
) -> None:
    module: Any = reranker(kind).engine.model
    assert module.module.get_output_embeddings().out_features == rows


@pytest.mark.parametrize(("kind", "forwards"), [("ettin", 1), ("qwen3", 2), ("classifier", 2)])
def test_pairs_share_a_forward_and_have_the_scores_that_they_have_alone(
    reranker: Load, kind: str, forwards: int
) -> None:
    """Causal models read what the pairs begin with in a forward of its own."""
    model, meter = reranker(kind, max_batch_tokens=2000), Meter()
    (ranked,) = model.engine.predict([Request(ranking(SONG, RAIN, "dull"))], meter)
    assert not isinstance(ranked, RequestError)
    assert (meter.counts["rows"], meter.counts["forwards"]) == (3, forwards)
    assert model.engine.model.capabilities.supports_packing
    alone = [model.ask([QUERY, text])["score"] for text in (SONG, RAIN, "dull")]
    assert {each["index"]: each["score"] for each in ranked} == pytest.approx(
        dict(enumerate(alone)), abs=1e-5
    )


def test_an_adapter_has_the_scores_of_merged_weights(tmp_path: Path) -> None:
    base = write(tmp_path / "base", "qwen3")
    adapter = tiny_adapters.write(tmp_path / "law", base, seed=0)
    merged = shutil.copytree(base, tmp_path / "merged")
    tiny_adapters.merged(base, adapter).save_pretrained(merged)
    model = Served(base, MODE, adapters={"law": str(adapter)})
    inputs = ranking(SONG, RAIN, "dull", "fine")
    chosen = {"inputs": inputs, "parameters": {"adapter_id": "law"}}
    ((status, found), (_, plain)) = model.post(chosen, {"inputs": inputs})
    assert status == 200, found
    expected = Served(merged, MODE).ask(inputs)
    assert by_index(found) == pytest.approx(by_index(expected), abs=1e-4)
    assert by_index(found) != pytest.approx(by_index(plain), abs=1e-3)


def by_index(ranked: Any) -> dict[int, float]:
    """Return the score of each text by its number."""
    return {each["index"]: each["score"] for each in ranked}


def test_a_request_has_its_instruction(reranker: Load) -> None:
    model = reranker("qwen3")
    default = "Given a web search query, retrieve relevant passages that answer the query"
    plain = model.ask([QUERY, SONG])
    assert model.ask([QUERY, SONG], instruction=default) == pytest.approx(plain)
    told = model.ask(ranking(SONG), **WEATHER)[0]["score"]
    assert told != pytest.approx(plain["score"])
    pair = {"inputs": [QUERY, SONG]}
    ((_, found), (_, other)) = model.post({**pair, "parameters": WEATHER}, pair)
    scores = found["score"], other["score"]
    assert scores == pytest.approx((told, plain["score"]), abs=1e-5)


def test_a_prompt_is_chosen_by_its_name(reranker: Load) -> None:
    told = reranker("stripped")
    assert told.ask([QUERY, SONG], prompt_name="film") == told.ask([QUERY, SONG])
    asked = told.ask([QUERY, SONG], instruction="Is it about a film?")
    assert asked == told.ask([QUERY, SONG])
    # Without a template it precedes the query.
    pooled = reranker("pooled")
    assert pooled.ask([QUERY, SONG], prompt_name="question") == pooled.ask([QUERY, SONG])


@pytest.mark.parametrize(
    ("kind", "given", "status", "facts"),
    [
        ("ettin", {"instruction": "Why?"}, 422, ["instruction"]),
        ("zerank", {"instruction": "Why?"}, 422, ["instruction"]),
        ("qwen3", {"instruction": ""}, 400, ["instruction"]),
        ("qwen3", {"instruction": 5}, 400, ["instruction"]),
        ("qwen3", {"instruction": "Why? " * 400}, 413, ["query", 512]),
        ("qwen3", {"prompt_name": "film"}, 400, ["film"]),
        ("pooled", {"prompt_name": "film"}, 400, ["film", "question"]),
        ("qwen3", {"truncate": False}, 413, ["text_pair", 512]),
        ("qwen3", {"max_length": 20}, 413, ["query", 20]),
    ],
)
def test_what_a_reranker_cannot_do_is_refused(
    reranker: Load, kind: str, given: dict[str, Any], status: int, facts: list[object]
) -> None:
    found, message = reranker(kind, max_length=512).refuse([QUERY, LONG], **given)
    assert (found, message) == (status, Sentence(*facts))


def test_a_query_that_leaves_no_room_harms_no_other_request(reranker: Load) -> None:
    model = reranker("qwen3", max_length=512)
    bodies = [{"inputs": ranking(query=query)} for query in (QUERY, LONG * 2, QUERY)]
    first, wrong, last = model.post(*bodies)
    assert (first[0], wrong[0], last[0]) == (200, 413, 200)
    assert first == last


def test_only_the_document_is_cut(reranker: Load) -> None:
    task: Any = reranker("qwen3", max_length=300).engine.task
    ((row,),) = task.encode([task.parse(Request([QUERY, LONG]))])
    text = task.tokenizer.decode(row.features["input_ids"])
    assert len(row) == 300
    assert f"<Query>: {QUERY}\n<Document>: Nina sings" in text
    assert text.endswith("<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n")
    numbers = row.encoding.sequence_ids
    assert (numbers[0], set(numbers), len(row.encoding.tokens)) == (None, {None, 0, 1}, 300)


@pytest.mark.parametrize("kind", ["qwen3", "zerank", "stripped", "ettin", "classifier"])
def test_an_explanation_is_that_of_the_gradient(reranker: Load, kind: str) -> None:
    model = reranker(kind)
    inputs = [f" {QUERY}", SONG]
    given = {"method": "input_x_gradient", "granularity": "token"}
    ((status, found),) = model.post(explanation_of({"inputs": inputs, "parameters": given}))
    assert status == 200, found
    task: Any = model.engine.task
    ((row,),) = task.encode([task.parse(Request(inputs))])
    expected, output = _gradient(model, row.features["input_ids"])
    assert found["output"] == pytest.approx(output, abs=1e-4)
    pairs = zip(found["attributions"], expected, found["sequence_ids"], strict=True)
    assert all(a == pytest.approx(b, abs=1e-4) for a, b, number in pairs if number is not None)
    for word, (start, end), number in zip(
        found["words"], found["offsets"], found["sequence_ids"], strict=True
    ):
        if number is not None and word.isalpha():
            assert found["texts"][number][start:end] == word


def _gradient(model: Served, ids: list[int]) -> tuple[list[float], float]:
    """Return input times gradient for each token, and the logit, by transformers alone."""
    task: Any = model.engine.task
    files = task.files
    name = task.auto_class_for(task.checkpoint.config)
    module: Any = getattr(transformers, name).from_pretrained(files.directory).eval()
    vectors = module.get_input_embeddings()(torch.tensor([ids])).detach().requires_grad_()
    outputs = module(inputs_embeds=vectors)
    if files.kind == "logits":
        logits, scored = outputs.logits[0, -1], files.scored
        score = logits[scored.true_token_id]
        if scored.false_token_id is not None:
            score = score - logits[scored.false_token_id]
    elif files.kind == "pooled":
        score = files.reduction().layers(outputs.last_hidden_state[:, 0])[0, 0]
    else:
        score = module.score(module.model(inputs_embeds=vectors).last_hidden_state[0, -1])[0]
    (gradient,) = torch.autograd.grad(score, vectors)
    return (gradient * vectors).sum(-1)[0].tolist(), float(score.detach())


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("v2/rerank", {"query": QUERY, "documents": [SONG]}),
        ("rerank", {"query": QUERY, "documents": [SONG]}),
        ("v1/score", {"text_1": QUERY, "text_2": SONG}),
    ],
)
def test_bodies_of_other_servers_have_an_instruction(
    reranker: Load, served: Load, path: str, body: dict[str, Any]
) -> None:
    told, plain = {**body, **WEATHER}, reranker("ettin")
    expected = reranker("qwen3").ask([QUERY, SONG], **WEATHER)["score"]
    ((status, answer),) = reranker("qwen3").post(_request_to(path, told))
    ((found,),) = (answer.get("results") or answer["data"],)
    assert (status, found.get("relevance_score", found.get("score"))) == (
        200,
        pytest.approx(expected, abs=1e-5),
    )
    ((refused, _),) = plain.post(_request_to(path, told))
    ((ignorant, _),) = served("late_interaction").post(_request_to("v2/rerank", told))
    assert (refused, ignorant) == (422, 422 if path != "v1/score" else 400)


def _request_to(path: str, body: dict[str, Any]) -> HttpRequest:
    return HttpRequest({"body": body}, {"url_path": path})


@pytest.mark.parametrize("kind", ["qwen3", "zerank", "classifier"])
def test_what_the_pairs_of_a_query_begin_with_is_computed_once(
    reranker: Load, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, meter = reranker(kind), Meter()
    texts = (SONG, RAIN, "dull", LONG[:90])
    bodies = [{"inputs": ranking(*texts)}, {"inputs": [QUERY, SONG]}]
    ranked, pair = (answer for _, answer in model.post(*bodies))
    model.engine.predict([Request(ranking(*texts))], meter)
    shared = meter.counts["tokens"]
    monkeypatch.setattr(sentence_ranking, "MIN_ROWS", 100)
    whole, meter = model.ask(ranking(*texts)), Meter()
    model.engine.predict([Request(ranking(*texts))], meter)
    assert shared < meter.counts["tokens"] * 0.8
    scores = {each["index"]: each["score"] for each in whole}
    assert {each["index"]: each["score"] for each in ranked} == pytest.approx(scores, abs=1e-5)
    assert pair["score"] == pytest.approx(scores[0], abs=1e-5)
