"""The test cases of speech recognition."""

from __future__ import annotations

from tests import sounds
from tests.modes._cases import ModeCases

CASES = ModeCases(
    inputs=sounds.TEXTS,
    parameters=[{}, {"return_timestamps": "char"}, {"return_timestamps": "word"}],
    rows=sounds.TEXTS,
    with_text=sounds.sound_for,
    tensor="audio",
    write=lambda folder, config, seed: sounds.write(folder, "Wav2Vec2ForCTC", config, seed),
)
