"""The test cases of text to image."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests import tiny_diffusion
from tests.modes._cases import FINE, LONG, ODD, ModeCases

SIDE = tiny_diffusion.SIDE
FEW: dict[str, Any] = {"num_inference_steps": 1, "seed": 3}


def write(folder: Path, config: Mapping[str, Any], seed: int) -> None:
    """Write a pipeline of Stable Diffusion's kind; its config has no further values."""
    tiny_diffusion.write(folder, seed)


INPUTS = [FINE, ODD, LONG, "a"]
CASES = ModeCases(
    inputs=INPUTS,
    parameters=[
        {**FEW, "negative_prompt": "blue", "guidance_scale": 3.0},
        {**FEW, "height": SIDE, "width": 2 * SIDE, "scheduler": "EulerDiscreteScheduler"},
    ],
    accepted=[("negative_prompt", "x" * 100)],
    brief=FEW,
    in_windows=True,
    rows=INPUTS,
    repeatable={"parameters": FEW},
    write=write,
)
