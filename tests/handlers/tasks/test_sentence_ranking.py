"""Ranking: the forms of its inputs, their limits, and the activation of a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hf_serve.handlers.errors import RequestError, WrongCheckpoint
from hf_serve.handlers.telemetry.metrics import Meter
from hf_serve.handlers.types.request import Request
from tests import tiny
from tests.samples import FINE, LONG, ODD
from tests.sentences import Sentence, refused
from tests.serving import Served, differences, explanation_of

Load = Callable[..., Served]
MODE = "sentence_ranking"
QUERY = "Who sings in Paris?"
TEXTS = [FINE, "Nina sings in Paris.", ODD, "dull"]
SIGMOID = "torch.nn.modules.activation.Sigmoid"
IDENTITY = "torch.nn.modules.linear.Identity"
NAMES = ("contradiction", "entailment", "neutral")
LABELS: dict[str, Any] = {"id2label": dict(enumerate(NAMES))}


def ranking(texts: Any = TEXTS, query: Any = QUERY) -> dict[str, Any]:
    return {"query": query, "texts": texts}


def test_texts_are_ranked_by_the_score_that_each_has_in_a_pair(served: Load) -> None:
    model = served(MODE)
    ranked = model.ask(ranking())
    pairs = [model.ask([QUERY, text])["score"] for text in TEXTS]
    assert [each["score"] for each in ranked] == sorted(
        (each["score"] for each in ranked), reverse=True
    )
    expected = [{"index": each["index"], "score": pairs[each["index"]]} for each in ranked]
    assert not differences(ranked, expected, 1e-5)


def test_top_n_keeps_the_best_and_return_documents_adds_their_texts(served: Load) -> None:
    model = served(MODE)
    best = model.ask(ranking(), top_n=2, return_documents=True)
    ranked = model.ask(ranking())[:2]
    assert best == [{**each, "text": TEXTS[each["index"]]} for each in ranked]
    assert model.ask(ranking(), top_k=2, return_text=True) == best


@pytest.mark.parametrize(
    "inputs",
    [
        {"query": QUERY, "documents": TEXTS},
        {"query": QUERY, "texts": [{"text": text} for text in TEXTS]},
    ],
)
def test_texts_have_the_forms_of_other_servers(served: Load, inputs: Any) -> None:
    assert served(MODE).ask(inputs) == served(MODE).ask(ranking())


@pytest.mark.parametrize("send", ["body", "instance", "line"])
def test_a_list_of_two_texts_is_one_pair(served: Load, send: str) -> None:
    model = served(MODE)
    expected = model.ask({"text": QUERY, "text_pair": FINE})
    bodies: dict[str, Any] = {
        "body": [QUERY, FINE],
        "instance": {"instances": [{"inputs": [QUERY, FINE]}]},
        "line": {"inputs": [QUERY, FINE]},
    }
    ((status, answer),) = model.post(bodies[send])
    assert status == 200
    assert not differences(answer.get("predictions", [answer])[0], expected, 1e-5)
    assert not differences(model.ask([[QUERY, FINE], [QUERY, FINE]]), [expected] * 2, 1e-5)


def test_the_texts_of_a_request_share_forward_passes(served: Load) -> None:
    meter = Meter()
    served(MODE).engine.predict([Request(ranking([FINE] * 20))], meter)
    assert (meter.counts["rows"], meter.counts["forwards"]) == (20, 1)


def test_only_the_text_is_truncated(served: Load) -> None:
    model = served(MODE, max_length=32)
    (rows,) = model.engine.task.encode([model.engine.task.parse(Request(ranking(["dull", LONG])))])
    assert not isinstance(rows, RequestError)
    alone = served(MODE).engine.task.checkpoint.tokenizer(QUERY, add_special_tokens=False)[
        "input_ids"
    ]
    for row in rows:
        sequences = row.encoding.sequence_ids
        own = [id_ for id_, number in zip(row.encoding.ids, sequences, strict=True) if number == 0]
        assert own == alone
    assert len(rows[0]) < 32 == len(rows[1])


def test_a_text_that_is_too_long_is_refused_by_its_number(served: Load) -> None:
    model = served(MODE, max_length=32)
    status, sentence = model.refuse(ranking(["dull", LONG]), truncate=False)
    assert (status, sentence.split(" has ")[0]) == (413, "texts[1]")
    assert model.ask(ranking(["dull", LONG]))
    strict = served(MODE, max_length=32, truncation=False)
    assert strict.refuse(ranking([LONG]))[0] == 413
    assert strict.ask(ranking([LONG]), truncate=True)


@pytest.mark.parametrize(
    ("inputs", "status", "facts"),
    [
        (ranking([]), 400, ["texts"]),
        (ranking(5), 400, ["texts"]),
        (ranking([FINE, ""]), 400, ["texts[1]"]),
        (ranking([FINE, 5]), 400, ["texts[1]"]),
        (ranking([{"title": FINE}]), 400, ["texts[0]"]),
        (ranking(query=""), 400, ["query"]),
        ({"query": QUERY}, 400, ["query", "inputs"]),
        ({"query": QUERY, "texts": [], "documents": []}, 400, ["inputs"]),
        ({"text": QUERY}, 400, ["text", "inputs"]),
        (["a", "b", "c"], 400, ["inputs"]),
        (QUERY, 400, ["inputs"]),
        (ranking(["a"] * 5), 413, ["texts", "5", "4"]),
        (ranking(query="a " * 64), 413, ["query"]),
    ],
)
def test_what_cannot_be_ranked_is_refused(
    served: Load, inputs: Any, status: int, facts: list[str]
) -> None:
    found, message = served(MODE, max_rows=4, max_length=32).refuse(inputs)
    assert (found, message) == (status, Sentence(*facts))


def test_a_wrong_request_does_not_change_the_ranking_beside_it(served: Load) -> None:
    model = served(MODE)
    (_, expected), *_ = model.post({"inputs": ranking()})
    first, wrong, last = model.post(
        {"inputs": ranking()}, {"inputs": ranking([FINE, ""])}, {"inputs": ranking()}
    )
    assert (first[0], wrong[0], last[0]) == (200, 400, 200)
    assert not differences([first[1], last[1]], [expected] * 2, 1e-5)


@pytest.mark.parametrize(
    ("config", "named", "raw"),
    [
        ({}, None, False),
        ({"sentence_transformers": {"activation_fn": IDENTITY}}, None, True),
        ({"sentence_transformers": {"activation_fn": SIGMOID, "version": "5.0"}}, None, False),
        ({"sentence_transformers": {"activation_fn": "torch.nn.Identity"}}, None, True),
        ({"sbert_ce_default_activation_function": IDENTITY}, None, True),
        ({"sbert_ce_default_activation_function": IDENTITY}, SIGMOID, False),
        ({}, IDENTITY, True),
    ],
)
def test_scores_have_the_activation_of_the_checkpoint(
    tmp_path: Path, config: dict[str, Any], named: str | None, raw: bool
) -> None:
    folder = tiny.write(tmp_path / "model", MODE, **config)
    if named:
        document = json.dumps({"activation_fn": named})
        (folder / "config_sentence_transformers.json").write_text(document)
    model = Served(folder, MODE)
    logit = model.ask([QUERY, FINE], raw_scores=True)["score"]
    expected = logit if raw else 1 / (1 + np.exp(-logit))
    assert model.ask([QUERY, FINE])["score"] == pytest.approx(expected)


@pytest.mark.parametrize("name", ["os.system", "torch.nn.modules.activation.SiLU", 5, {}])
def test_an_activation_that_is_not_known_stops_the_load(tmp_path: Path, name: Any) -> None:
    config: dict[str, Any] = {"sentence_transformers": {"activation_fn": name}}
    folder = tiny.write(tmp_path / "model", MODE, **config)
    with refused(WrongCheckpoint, name):
        Served(folder, MODE)


def test_a_pair_has_the_logit_of_each_of_several_labels(tmp_path: Path) -> None:
    model = Served(tiny.write(tmp_path / "model", MODE, **LABELS), MODE)
    scores = model.ask([QUERY, FINE])["scores"]
    assert [each["label"] for each in scores] == list(NAMES)
    assert scores == model.ask([QUERY, FINE], raw_scores=True)["scores"]
    status, sentence = model.refuse(ranking())
    assert (status, "3 labels, which give texts no order" in sentence) == (422, True)


def test_the_explanation_of_a_text_has_words_of_both_sides(served: Load) -> None:
    model = served(MODE)
    ranked = model.ask(ranking(), raw_scores=True)
    for target in (None, ranked[-1]["index"]):
        given = {"target": target, "granularity": "word"}
        body = {"inputs": ranking(), "parameters": given}
        ((status, explanation),) = model.post(explanation_of(body))
        assert status == 200
        number = ranked[0]["index"] if target is None else target
        score = next(each["score"] for each in ranked if each["index"] == number)
        assert explanation["target"]["index"] == number
        assert explanation["prediction"]["index"] == ranked[0]["index"]
        assert explanation["texts"] == [QUERY, TEXTS[number]]
        assert explanation["output"] == pytest.approx(score, abs=1e-4)
        assert {0, 1} <= set(explanation["sequence_ids"])


@pytest.mark.parametrize("target", [4, -1, "a", True, {}])
def test_an_unknown_text_is_a_bad_request(served: Load, target: Any) -> None:
    body = {"inputs": ranking(), "parameters": {"target": target}}
    ((status, answer),) = served(MODE).post(explanation_of(body))
    assert status == 400
    assert answer["message"] == Sentence("target", 0, 3)


def test_a_label_of_a_pair_is_a_target(tmp_path: Path) -> None:
    model = Served(tiny.write(tmp_path / "model", MODE, **LABELS), MODE)
    body = {"inputs": [QUERY, FINE], "parameters": {"target": "entailment"}}
    ((status, explanation),) = model.post(explanation_of(body))
    assert (status, explanation["target"]["index"]) == (200, 1)
