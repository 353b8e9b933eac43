"""The test cases of audio classification."""

from __future__ import annotations

from tests import sounds
from tests.modes._cases import ModeCases

CASES = ModeCases(
    inputs=sounds.TEXTS,
    parameters=[{}, {"top_k": None}, {"function_to_apply": "sigmoid"}],
    brief={"top_k": 2},
    labels=sounds.LABELS,
    rows=sounds.TEXTS,
    with_text=sounds.sound_for,
    tensor="audio",
    write=lambda folder, config, seed: sounds.write(
        folder, "Wav2Vec2ForSequenceClassification", config, seed
    ),
)
