"""Requests on which exported models are calibrated and measured, from the texts of the trainers.

`python -m hf_serve.demo_models.calibration` writes `artifacts/<mode>/calibration.jsonl` again.
"""

from __future__ import annotations

import json
from typing import Any

from hf_serve.demo_models.trainers import modes, trainer_of
from hf_serve.scripts.paths import ARTIFACTS

FILE = "calibration.jsonl"
# Half of the rows measure an export: 99% of 800 labels has a 95% interval of 98.0% to 99.5%.
ROWS = 800
SEED = 23


def bodies(mode: str) -> list[dict[str, Any]]:
    """Return different request bodies of a mode; none where its file is written by hand."""
    written = trainer_of(mode).calibration_bodies(ROWS, SEED)
    # A row that is there twice would be in the calibration and in the evaluation.
    return [body for number, body in enumerate(written) if body not in written[:number]]


def write() -> None:
    """Write the file of each mode whose trainer has the inputs."""
    for mode in modes():
        lines = [json.dumps(body, ensure_ascii=False) + "\n" for body in bodies(mode)]
        if lines:
            (ARTIFACTS / mode / FILE).write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    write()
