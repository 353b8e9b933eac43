"""The test cases of text to speech."""

from __future__ import annotations

from typing import Any

from tests import tiny_vits
from tests.modes._cases import FINE, LONG, ODD, ModeCases

SEED: dict[str, Any] = {"seed": 3}
INPUTS = [FINE, ODD, LONG[:300], "a"]
CASES = ModeCases(
    inputs=INPUTS,
    parameters=[SEED, {**SEED, "speaking_rate": 2.0, "noise_scale": 0.0}],
    brief=SEED,
    rows=INPUTS,
    repeatable={"parameters": SEED},
    write=tiny_vits.write,
)
