"""The test cases of zero-shot token classification."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.modes._cases import FINE, LONG, ODD, ModeCases


def with_labels(text: Any) -> Any:
    """Return inputs with a text and the labels to find."""
    return {"text": text, "labels": "person, city, a kind of music"}


def write(folder: Path, config: Mapping[str, Any], seed: int) -> None:
    """Write a tiny checkpoint."""
    from tests import tiny_gliner  # noqa: PLC0415 - it takes the time of torch

    tiny_gliner.write(
        folder, tiny_gliner.Kind("DebertaV2", config, tiny_gliner.DEBERTA, most=0.25), seed + 8
    )


INPUTS = [with_labels(text) for text in (FINE, ODD, LONG, "Nina sings.")]
CASES = ModeCases(
    inputs=INPUTS,
    parameters=[
        {"threshold": 0.45},
        {"threshold": 0.6, "flat_ner": False},
        {"threshold": 0.4, "multi_label": True, "stride": 2},
    ],
    brief={"threshold": 0.6},
    config={"hidden_size": 24, "max_width": 4, "max_len": 32},
    with_text=with_labels,
    text_name="text",
    in_windows=True,
    adds_words=True,
    rows=INPUTS,
    accepted=[("labels", "x" * 100)],
    write=write,
)
