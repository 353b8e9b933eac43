"""Requests on which exported models are calibrated and measured, from the texts of the lessons.

`python -m scripts.kit.demo_models.calibration` writes `artifacts/<mode>/calibration.jsonl` again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from scripts.kit.demo_models.entities import sentences
from scripts.kit.demo_models.questions import questions
from scripts.kit.demo_models.sentiment import reviews
from scripts.kit.demo_models.stories import stories
from scripts.kit.places import ARTIFACTS

FILE = "calibration.jsonl"
ROWS = 240
SEED = 23


def bodies(mode: str) -> list[dict[str, Any]]:
    """Return request bodies of a mode, with texts that no lesson trains on."""
    return [{"inputs": inputs} for inputs in INPUTS[mode]()]


def _questions() -> list[Any]:
    written = questions("held_out", ROWS, SEED)
    return [{"question": each.question, "context": each.context} for each in written]


INPUTS: dict[str, Callable[[], list[Any]]] = {
    "question_answering": _questions,
    "sequence_classification": lambda: [each.text for each in reviews("held_out", ROWS, SEED)],
    "text_generation": lambda: stories("held_out", ROWS // 4, SEED),
    "token_classification": lambda: [each.text for each in sentences("held_out", ROWS, SEED)],
}


def write() -> None:
    """Write each mode's file."""
    for mode in INPUTS:
        lines = [json.dumps(body, ensure_ascii=False) + "\n" for body in bodies(mode)]
        (ARTIFACTS / mode / FILE).write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    write()
