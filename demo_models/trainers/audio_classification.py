"""A small audio spectrogram transformer learns to name the signals of telephones."""

from __future__ import annotations

from typing import Any

import torch
from transformers import ASTConfig, ASTFeatureExtractor, ASTForAudioClassification

from hf_serve.demo_models.synthetic_audio import LABELS, RATE, random, signal, signal_inputs
from hf_serve.demo_models.trainers.base import MediaTrainer
from hf_serve.demo_models.training import Feature, Plan, accuracy

# A second has 48 frames.
SPECTROGRAM = {"num_mel_bins": 32, "max_length": 48}
CONFIG = {
    **SPECTROGRAM,
    "patch_size": 8,
    "frequency_stride": 8,
    "time_stride": 8,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
}


class AudioClassification(MediaTrainer):
    """One signal in each row."""

    plan = Plan(rows=1600, batch=16, rate=2e-3)
    evaluation_rows = 300

    def start(self, seed: int) -> tuple[Any, Any]:
        """Return a spectrogram transformer with random weights, and its feature extractor."""
        config = ASTConfig(**CONFIG, id2label=dict(enumerate(LABELS)))
        return ASTForAudioClassification(config), ASTFeatureExtractor(
            sampling_rate=RATE, **SPECTROGRAM
        )

    def rows(self, processor: Any, count: int, seed: str) -> list[Feature]:
        """Write signals with their labels."""
        rng = random(seed)
        signals = [signal(rng) for _ in range(count)]
        values = processor([samples for samples, _ in signals], sampling_rate=RATE)["input_values"]
        return [
            {"input_values": torch.from_numpy(each), "labels": LABELS.index(label)}
            for each, (_, label) in zip(values, signals, strict=True)
        ]

    def evaluate(self, model: Any, tokenizer: Any, rows: int, seed: int) -> dict[str, float]:
        """Return the share of signals with the right label."""
        return {"accuracy": accuracy(model, self.held_out(tokenizer, rows, seed))}

    def calibration_inputs(self, rows: int, seed: int) -> list[Any]:
        """Write signals."""
        return signal_inputs(rows, seed)


TRAINER = AudioClassification()
