from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tests.modes.zero_shot_token_classification import with_labels
from tests.serving import Served

MODE = "zero_shot_token_classification"
Model = Callable[..., Served]
TEXT = "Nina Vogel sings in Paris; her brother Tom lives in New York."
LABELS = ["a kind of music", "city"]


def places(found: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(each["start"], each["end"], each["entity_group"]) for each in found]


def test_labels_are_a_list_a_text_or_keys_of_the_inputs(served: Model) -> None:
    model = served(MODE)
    expected = model.ask(TEXT, labels=LABELS, threshold=0.2)
    assert expected
    assert model.ask(TEXT, labels="a kind of music, city", threshold=0.2) == expected
    assert model.ask(TEXT, candidate_labels=LABELS, threshold=0.2) == expected
    assert model.ask({"text": TEXT, "labels": LABELS}, threshold=0.2) == expected
    assert model.ask({"text": TEXT, "candidate_labels": LABELS}, threshold=0.2) == expected
    assert model.ask(TEXT, labels=[*LABELS, "city"], threshold=0.2) == expected


def test_a_description_is_read_in_place_of_its_label(served: Model) -> None:
    model = served(MODE)
    described = model.ask(TEXT, labels={"A": "a kind of music", "B": "city"}, threshold=0.2)
    named = model.ask(TEXT, labels=LABELS, threshold=0.2)
    renamed = {"a kind of music": "A", "city": "B"}
    assert described == [{**each, "entity_group": renamed[each["entity_group"]]} for each in named]


def test_labels_of_the_yaml_are_those_of_requests_without_any(served: Model) -> None:
    model = served(MODE, parameters={"labels": LABELS, "threshold": 0.2})
    assert model.ask(TEXT) == served(MODE).ask(TEXT, labels=LABELS, threshold=0.2)


def test_a_span_is_a_part_of_the_text(served: Model) -> None:
    found = served(MODE).ask(TEXT, labels=LABELS, threshold=0.1)
    assert found
    for each in found:
        assert TEXT[each["start"] : each["end"]] == each["word"]
        assert each["score"] > 0.1


def test_spans_within_others_are_returned_where_they_are_asked_for(served: Model) -> None:
    model = served(MODE)
    flat = places(model.ask(TEXT, labels=LABELS, threshold=0.05))
    nested = places(model.ask(TEXT, labels=LABELS, threshold=0.05, flat_ner=False))
    assert len(nested) > len(flat)
    assert all(before[1] <= after[0] for before, after in pairwise(flat))


def test_a_long_text_is_read_in_windows_to_its_end(served: Model) -> None:
    model = served(MODE)
    text = " ".join([TEXT] * 30)
    found = model.ask(text, labels=LABELS, threshold=0.2)
    assert max(each["end"] for each in found) > len(text) - len(TEXT)
    assert found == sorted(found, key=lambda each: each["start"])


@pytest.mark.parametrize(
    ("given", "status", "part"),
    [
        ({}, 400, "has no labels"),
        ({"labels": []}, 400, "labels is empty"),
        ({"labels": " , "}, 400, "labels is empty"),
        ({"labels": ["city", " "]}, 400, "labels is empty"),
        ({"labels": [5]}, 400, "labels"),
        ({"labels": {"PER": ""}}, 400, "labels is empty"),
        ({"labels": [f"label {number}" for number in range(999)]}, 413, "labels has 999 labels"),
        ({"labels": ["person " * 500]}, 413, "the labels have"),
        ({"labels": LABELS, "threshold": 1.5}, 400, "threshold"),
        ({"labels": LABELS, "stride": -1}, 400, "stride"),
    ],
)
def test_labels_and_parameters_that_cannot_be_used_are_refused(
    served: Model, given: dict[str, Any], status: int, part: str
) -> None:
    found, sentence = served(MODE).refuse(TEXT, **given)
    assert (found, part in sentence) == (status, True), sentence


def test_a_text_of_too_many_windows_is_refused(served: Model) -> None:
    status, sentence = served(MODE, max_rows=3).refuse(with_labels("Nina sings. " * 100))
    assert status == 413
    assert "windows" in sentence


def test_words_without_tokens_are_in_no_span(served: Model) -> None:
    found = served(MODE).ask("Nina \u200b\u200b sings", labels=LABELS, threshold=0.0)
    assert "\u200b" not in {each["word"] for each in found}


def test_models_are_compared_by_which_spans_are_entities(served: Model) -> None:
    task = served(MODE).engine.task
    logits = np.array([[1.5, -np.inf], [-0.5, 0.2]], dtype=np.float32)
    decided = task.decision_scores({"logits": logits})["logits"].argmax(-1)
    assert decided.tolist() == [[1, 0], [0, 1]]


def test_a_label_with_the_marker_of_labels_is_one_label(served: Model) -> None:
    found = served(MODE).ask(TEXT, labels=["a <<ENT>> b <<SEP>>", "city"], threshold=0.1)
    assert {each["entity_group"] for each in found} <= {"a <<ENT>> b <<SEP>>", "city"}
