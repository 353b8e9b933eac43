"""Sounds of several lengths, and tiny checkpoints of models that read audio, for tests."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import soundfile
import torch
import transformers
from transformers import (
    ASTFeatureExtractor,
    SequenceFeatureExtractor,
    Wav2Vec2FeatureExtractor,
    WhisperFeatureExtractor,
)

RATE = 16_000
SECONDS = (0.4, 0.65, 0.4, 1.1)

Samples = npt.NDArray[np.float32]


def sound_of(seed: int, seconds: float = 0.4, rate: int = RATE) -> Samples:
    """Return tones that change a few times a second, and noise."""
    rng = np.random.default_rng(seed)
    times = np.arange(round(seconds * rate)) / rate
    steps = rng.uniform(150, 3_000, size=1 + int(seconds * 8))
    waves = np.sin(2 * np.pi * steps[(times * 8).astype(int)] * times)
    return (0.4 * waves + 0.02 * rng.standard_normal(len(times))).astype(np.float32)


def file_of(samples: Any, rate: int = RATE, kind: str = "WAV", subtype: str | None = None) -> bytes:
    """Return the bytes of an audio file. Shape of several channels: (frames, channels)."""
    stream = BytesIO()
    subtype = subtype or ("FLOAT" if kind == "WAV" else None)
    soundfile.write(stream, samples, rate, format=kind, subtype=subtype)
    return stream.getvalue()


def encoded(file: bytes) -> str:
    """Return a file in base64."""
    return base64.b64encode(file).decode()


def sound_for(text: Any) -> str:
    """Return a file in base64 that depends on a text."""
    return encoded(file_of(sound_of(sum(map(ord, str(text))))))


SOUNDS = [sound_of(number, seconds) for number, seconds in enumerate(SECONDS)]
FILES = [file_of(each) for each in SOUNDS]
TEXTS = [encoded(each) for each in FILES]
BROKEN = FILES[0][:5_000]

CONVOLUTIONS: Mapping[str, Any] = {
    "conv_dim": [16, 16],
    "conv_kernel": [10, 8],
    "conv_stride": [8, 8],
    "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "classifier_proj_size": 16,
}
PATCHES: Mapping[str, Any] = {
    "num_mel_bins": 32,
    "max_length": 48,
    "patch_size": 16,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}


def waves(**settings: Any) -> SequenceFeatureExtractor:
    """Return a feature extractor of waveforms."""
    extractor: SequenceFeatureExtractor = Wav2Vec2FeatureExtractor(**settings)
    return extractor


# The mode of each model, the values of its config, and its feature extractor.
FAMILIES: dict[str, tuple[str, Mapping[str, Any], SequenceFeatureExtractor]] = {
    "Wav2Vec2ForSequenceClassification": ("audio_classification", CONVOLUTIONS, waves()),
    "HubertForSequenceClassification": (
        "audio_classification",
        {**CONVOLUTIONS, "feat_extract_norm": "layer"},
        waves(return_attention_mask=True),
    ),
    "ASTForAudioClassification": (
        "audio_classification",
        PATCHES,
        ASTFeatureExtractor(num_mel_bins=32, max_length=48),
    ),
    "WhisperForAudioClassification": (
        "audio_classification",
        {
            "d_model": 16,
            "encoder_layers": 2,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 32,
            "decoder_layers": 1,
            "decoder_attention_heads": 2,
            "num_mel_bins": 20,
            "max_source_positions": 100,
        },
        WhisperFeatureExtractor(feature_size=20, chunk_length=2),
    ),
}


def mode_of(family: str) -> str:
    """Return the mode that serves a model."""
    return FAMILIES[family][0]


def write(
    folder: Path, family: str, config: Mapping[str, Any] | None = None, seed: int = 0
) -> Path:
    """Write a checkpoint of a model, with the same weights each time."""
    folder.mkdir(parents=True, exist_ok=True)
    _, values, extractor = FAMILIES[family]
    kind = getattr(transformers, family)
    names = {"id2label": dict(enumerate(LABELS))} if "Classification" in family else {}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = kind(kind.config_class(**{**values, **names, **(config or {})}))
        with torch.no_grad():
            for weight in model.parameters():
                weight.add_(torch.randn_like(weight) * 0.2)
    model.save_pretrained(folder)
    extractor.save_pretrained(folder)
    return folder


LABELS = ("bell", "horn", "siren")
