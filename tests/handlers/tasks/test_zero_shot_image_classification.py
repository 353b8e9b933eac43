"""Zero-shot image classification: labels that are encoded once, and wrong ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hf_serve.handlers.types.request import Request
from tests.images import FILES, TEXTS, raw
from tests.sentences import Sentence
from tests.serving import Served, differences

MODE = "zero_shot_image_classification"
LABELS = ["film", "river"]


@pytest.fixture
def model(served: Callable[..., Served]) -> Served:
    return served(MODE)


def test_a_label_of_several_images_is_encoded_once(
    model: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes: list[tuple[int, int]] = []
    original = model.engine.model.forward

    def counted(batch: Any) -> Any:
        shapes.append((len(batch["pixel_values"]), len(batch["input_ids"])))
        return original(batch)

    monkeypatch.setattr(model.engine.model, "forward", counted)
    labels = (LABELS, ["river", "music"], LABELS)
    requests = [
        Request(text, {"candidate_labels": each}) for text, each in zip(TEXTS, labels, strict=False)
    ]
    found = model.engine.predict(requests)
    assert shapes == [(3, 3)]
    alone = [model.engine.predict([each])[0] for each in requests]
    assert not differences(found, alone, 1e-5)


def test_a_file_alone_is_refused_without_labels(model: Served) -> None:
    ((status, answer),) = model.post(raw(FILES[0], "image/png"))
    assert (status, answer["message"]) == (
        400,
        Sentence("parameters", "candidate_labels"),
    )


@pytest.mark.parametrize(
    ("parameters", "status", "facts"),
    [
        ({"candidate_labels": []}, 400, ["candidate_labels"]),
        ({"candidate_labels": ["a"] * 129}, 413, ["129"]),
        ({"candidate_labels": ["word " * 200]}, 413, ["template"]),
        ({"candidate_labels": LABELS, "hypothesis_template": "none"}, 400, ["0"]),
        ({"candidate_labels": ["half \ud83d of it"]}, 400, []),
    ],
)
def test_wrong_labels_are_refused_with_a_reason(
    model: Served, parameters: dict[str, Any], status: int, facts: list[str]
) -> None:
    found, message = model.refuse(TEXTS[0], **parameters)
    assert (found, message) == (status, Sentence(*facts))
