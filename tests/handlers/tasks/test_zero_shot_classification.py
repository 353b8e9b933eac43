"""Zero-shot classification: labels, templates and limits beside the reference answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.sentences import Sentence
from tests.serving import Served, explanation_of

Load = Callable[..., Served]
MODE = "zero_shot_classification"
TEXT = "A fine film with a great cast."
LABELS = ["music", "weather", "cities"]


@pytest.mark.parametrize(
    ("inputs", "parameters"),
    [
        (TEXT, {"candidate_labels": LABELS}),
        (TEXT, {"candidateLabels": "music, weather,,cities"}),
        ({"text": TEXT, "candidate_labels": LABELS}, {}),
        ({"text": TEXT, "candidate_labels": LABELS}, {"candidate_labels": None}),
        ({"text": TEXT, "candidate_labels": "others"}, {"candidateLabels": LABELS}),
        ({"sequences": TEXT}, {"candidate_labels": LABELS}),
        ({"sequences": TEXT, "candidateLabels": LABELS}, {}),
    ],
)
def test_labels_may_be_written_in_several_ways(
    served: Load, inputs: Any, parameters: dict[str, Any]
) -> None:
    model = served(MODE)
    expected = model.ask(TEXT, candidate_labels=LABELS)
    assert model.ask(inputs, **parameters) == expected
    assert expected["sequence"] == TEXT
    assert sum(expected["scores"]) == pytest.approx(1)
    assert expected["scores"] == sorted(expected["scores"], reverse=True)


def test_a_long_text_is_truncated_and_its_hypotheses_are_not(served: Load) -> None:
    model = served(MODE)
    long = model.ask(f"{TEXT} " * 200, candidate_labels=LABELS)
    longer = model.ask(f"{TEXT} " * 400, candidate_labels=LABELS)
    assert long["scores"] == pytest.approx(longer["scores"])
    assert len(set(long["scores"])) == len(LABELS)


@pytest.mark.parametrize(
    ("parameters", "status", "facts"),
    [
        ({}, 400, []),
        ({"candidate_labels": " , "}, 400, ["candidate_labels"]),
        ({"candidate_labels": []}, 400, ["candidate_labels"]),
        ({"candidate_labels": ["a", ""]}, 400, ["candidate_labels"]),
        ({"candidate_labels": ["a"] * 9}, 413, ["9"]),
        ({"candidate_labels": ["a"], "hypothesis_template": "It is so."}, 400, ["0"]),
        ({"candidate_labels": ["a"], "hypothesis_template": "{0.real}"}, 400, ["0"]),
        ({"candidate_labels": ["a fox " * 80]}, 413, []),
    ],
)
def test_wrong_labels_are_refused(
    served: Load, parameters: dict[str, Any], status: int, facts: list[str]
) -> None:
    found, sentence = served(MODE, max_rows=8).refuse(TEXT, **parameters)
    assert (found, sentence) == (status, Sentence(*facts))


@pytest.mark.parametrize("target", ["weather", 1])
def test_the_words_behind_the_score_of_a_label_are_explained(served: Load, target: Any) -> None:
    body = {"inputs": TEXT, "parameters": {"candidate_labels": LABELS}, "target": target}
    ((status, found),) = served(MODE).post(explanation_of(body))
    assert status == 200
    assert (found["target"]["label"], found["target"]["index"]) == ("weather", 1)
    assert found["texts"] == [TEXT, "This example is weather."]
    assert {0, 1} <= set(found["sequence_ids"])


@pytest.mark.parametrize("target", ["sports", 3, True, [0]])
def test_an_unknown_label_is_a_bad_request(served: Load, target: Any) -> None:
    body = {"inputs": TEXT, "parameters": {"candidate_labels": LABELS}, "target": target}
    ((status, _),) = served(MODE).post(explanation_of(body))
    assert status == 400
