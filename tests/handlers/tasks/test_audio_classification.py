"""Audio classification: the answers of the pipeline, for several families of models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoFeatureExtractor, AutoModelForAudioClassification, pipeline

from tests import sounds
from tests.sentences import Sentence
from tests.serving import Served, differences
from tests.sounds import SOUNDS, TEXTS, encoded, file_of, sound_of

MODE = "audio_classification"
FAMILIES = [name for name in sounds.FAMILIES if sounds.mode_of(name) == MODE]
PARAMETERS: list[dict[str, Any]] = [
    {},
    {"top_k": 2, "function_to_apply": "sigmoid"},
    {"top_k": 1, "function_to_apply": "none"},
]


@pytest.mark.parametrize("family", FAMILIES)
def test_answers_are_those_of_the_pipeline(tmp_path: Path, family: str) -> None:
    folder = sounds.write(tmp_path / "model", family)
    reference = pipeline(
        "audio-classification",
        model=AutoModelForAudioClassification.from_pretrained(folder),
        feature_extractor=AutoFeatureExtractor.from_pretrained(folder),
        device=torch.device("cpu"),
    )
    model = Served(folder, MODE)
    for parameters in PARAMETERS:
        expected = [reference(sound, **parameters) for sound in SOUNDS]
        alone = [model.ask(text, **parameters) for text in TEXTS]
        together = model.ask([*TEXTS, *reversed(TEXTS)], **parameters)
        for found in (alone, together[:4], together[:3:-1]):
            assert not differences(found, expected, 1e-4)


def test_audio_that_is_too_long_for_a_forward_is_refused(tmp_path: Path) -> None:
    folder = sounds.write(tmp_path / "model", FAMILIES[0])
    model = Served(folder, MODE, max_batch_samples=20_000)
    assert model.ask(encoded(file_of(sound_of(1, 1.2))))
    assert model.refuse(encoded(file_of(sound_of(1, 1.3)))) == (
        413,
        Sentence("20,800", "20,000"),
    )
