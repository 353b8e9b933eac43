"""The test cases of zero-shot classification."""

from __future__ import annotations

from typing import Any

from tests.modes._cases import FINE, LONG, ODD, ModeCases

NAMES = ("contradiction", "neutral", "entailment")


def with_labels(text: Any) -> Any:
    """Return inputs with a text and the labels to choose from."""
    return {"text": text, "candidate_labels": "music, weather, cities"}


INPUTS = [with_labels(text) for text in (FINE, ODD, LONG, "dull")]
CASES = ModeCases(
    inputs=INPUTS,
    parameters=[
        {"hypothesis_template": "{}"},
        {"multi_label": True},
        {"hypothesis_template": "It is about {}."},
    ],
    config={
        "id2label": dict(enumerate(NAMES)),
        "label2id": {name: number for number, name in enumerate(NAMES)},
    },
    with_text=with_labels,
    text_name="text",
    rows=INPUTS,
    adds_words=True,
    accepted=[("candidate_labels", "x" * 100)],
)
