"""Zero-shot classification: labels, templates and limits beside the reference answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from hf_serve.handlers.errors import WrongCheckpoint
from tests import tiny
from tests.sentences import Sentence, refused
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


def loaded(folder: Path, names: Sequence[str], file: dict[str, str] | None = None) -> Served:
    """Load a model whose config has names of classes, and no `label2id`."""
    tiny.write(folder, MODE, id2label=dict(enumerate(names)))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config.pop("label2id")
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    if file:
        (folder / "index_to_name.json").write_text(json.dumps(file), encoding="utf-8")
    return Served(folder, MODE)


def test_entailment_is_a_class_among_the_labels_that_are_served(tmp_path: Path) -> None:
    names = ("entailment", "neutral", "contradiction")
    by_config = loaded(tmp_path / "config", names)
    plain = ("entailment", "b", "c")
    by_file = loaded(tmp_path / "file", plain[::-1], {str(n): each for n, each in enumerate(names)})
    other = loaded(tmp_path / "other", names[::-1])
    for parameters in ({}, {"multi_label": True}):
        asked = {"candidate_labels": LABELS, **parameters}
        assert by_file.ask(TEXT, **asked) == by_config.ask(TEXT, **asked)
        assert by_file.ask(TEXT, **asked)["scores"] != other.ask(TEXT, **asked)["scores"]


@pytest.mark.parametrize("file", [None, {"0": "yes", "1": "no", "2": "perhaps"}])
def test_a_model_without_a_class_of_entailment_is_refused(
    tmp_path: Path, file: dict[str, str] | None
) -> None:
    names = ("entailment", "neutral", "contradiction") if file else ("yes", "no", "perhaps")
    with refused(WrongCheckpoint, "entail", "yes", "no", "perhaps", "index_to_name.json"):
        loaded(tmp_path / "model", names, file)
