"""Requests on which exported models are calibrated and measured, from the texts of the lessons.

`python -m scripts.kit.demo_models.calibration` writes `artifacts/<mode>/calibration.jsonl` again.
"""

from __future__ import annotations

import json
from typing import Any

from scripts.kit.demo_models.lessons import lesson_of, modes
from scripts.kit.places import ARTIFACTS

FILE = "calibration.jsonl"
ROWS = 240
SEED = 23


def bodies(mode: str) -> list[dict[str, Any]]:
    """Return request bodies of a mode; none where its file is written by hand."""
    return [{"inputs": inputs} for inputs in lesson_of(mode).calibration_inputs(ROWS, SEED)]


def write() -> None:
    """Write the file of each mode whose lesson has the inputs."""
    for mode in modes():
        lines = [json.dumps(body, ensure_ascii=False) + "\n" for body in bodies(mode)]
        if lines:
            (ARTIFACTS / mode / FILE).write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    write()
