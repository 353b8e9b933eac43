"""Similarity: the forms of its inputs, its function, and the explanation of both sides."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import tiny
from tests.samples import FINE, ODD
from tests.sentences import Sentence
from tests.serving import Served, differences, explanation_of

Load = Callable[..., Served]
MODE = "sentence_similarity"
SOURCE = "Nina sings in Paris."
SENTENCES = [FINE, "Nina Vogel sings.", ODD]


def compared(sentences: Any = SENTENCES, source: Any = SOURCE) -> dict[str, Any]:
    return {"source_sentence": source, "sentences": sentences}


def test_similarities_are_in_the_order_of_the_sentences(served: Load) -> None:
    model = served(MODE)
    together = model.ask(compared())
    assert not differences(together, [model.ask(compared([each]))[0] for each in SENTENCES], 1e-5)
    assert model.ask(compared(SOURCE)) == [pytest.approx(1)]


@pytest.mark.parametrize(
    ("name", "function"),
    [
        (None, lambda a, b: a @ b / np.linalg.norm(a) / np.linalg.norm(b)),
        ("dot", lambda a, b: a @ b),
        ("euclidean", lambda a, b: -np.linalg.norm(a - b)),
        ("manhattan", lambda a, b: -np.abs(a - b).sum()),
    ],
)
def test_the_checkpoint_names_the_similarity_of_its_vectors(
    tmp_path: Path, name: str | None, function: Any
) -> None:
    folder = tiny.write(tmp_path / "model", MODE)
    settings = json.dumps({"similarity_fn_name": name})
    (folder / "config_sentence_transformers.json").write_text(settings, encoding="utf-8")
    embedder = Served(folder, "sentence_embedding")
    source, *others = map(np.array, embedder.ask([SOURCE, *SENTENCES]))
    expected = [float(function(source, other)) for other in others]
    model = Served(folder, MODE)
    assert not differences(model.ask(compared()), expected, 1e-4)
    body = {"inputs": compared(), "parameters": {"target": 1}}
    ((status, explanation),) = model.post(explanation_of(body))
    assert status == 200
    assert explanation["source"]["output"] == pytest.approx(expected[1], rel=1e-4)


@pytest.mark.parametrize(
    ("inputs", "status", "facts"),
    [
        (compared([]), 400, ["sentences"]),
        (compared(5), 400, ["sentences"]),
        (compared([FINE, ""]), 400, ["sentences[1]"]),
        (compared(source=None), 400, ["source_sentence"]),
        ({"source_sentence": SOURCE}, 400, ["source_sentence", "inputs"]),
        (SOURCE, 400, ["inputs"]),
        (compared(["a"] * 5), 413, ["sentences", "5", "4"]),
    ],
)
def test_what_cannot_be_compared_is_refused(
    served: Load, inputs: Any, status: int, facts: list[str]
) -> None:
    found, message = served(MODE, max_rows=4).refuse(inputs)
    assert (found, message) == (status, Sentence(*facts))


@pytest.mark.parametrize("method", ["layer_integrated_gradients", "feature_ablation"])
def test_the_explanation_has_words_of_both_sides(served: Load, method: str) -> None:
    model = served(MODE)
    scores = model.ask(compared())
    for target in (None, 2):
        given = {"target": target, "method": method, "granularity": "word"}
        ((status, explanation),) = model.post(
            explanation_of({"inputs": compared(), "parameters": given})
        )
        assert status == 200
        number = int(np.argmax(scores)) if target is None else target
        assert explanation["target"]["index"] == number
        assert explanation["texts"] == [SOURCE, SENTENCES[number]]
        assert {0, 1} <= set(explanation["sequence_ids"])
        sides = explanation["source"], explanation["sentence"]
        assert len(explanation["words"]) == sum(len(side["attributions"]) for side in sides)
        for side in sides:
            assert side["output"] == pytest.approx(scores[number], abs=1e-4)


@pytest.mark.parametrize("target", [3, -1, "a", True])
def test_an_unknown_sentence_is_a_bad_request(served: Load, target: Any) -> None:
    body = {"inputs": compared(), "parameters": {"target": target}}
    ((status, answer),) = served(MODE).post(explanation_of(body))
    assert (status, answer["message"]) == (400, Sentence("target", 0, 2))
