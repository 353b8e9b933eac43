"""A tiny VITS, seeded, whose durations and waveforms depend on texts and speakers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import VitsConfig, VitsModel, VitsTokenizer

# The first one is the blank, as in MMS-TTS, where it is a letter, too.
LETTERS = "k'z_abcdefghijlmnopqrstuvwxy -"
RATE = 8_000
SIZES: Mapping[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "ffn_dim": 32,
    "flow_size": 16,
    "spectrogram_bins": 9,
    "upsample_initial_channel": 16,
    "upsample_rates": [4, 4],
    "upsample_kernel_sizes": [8, 8],
    "resblock_kernel_sizes": [3],
    "resblock_dilation_sizes": [[1, 3]],
    "depth_separable_num_layers": 1,
    "duration_predictor_flow_bins": 4,
    "duration_predictor_num_flows": 2,
    "duration_predictor_filter_channels": 16,
    "prior_encoder_num_flows": 2,
    "prior_encoder_num_wavenet_layers": 1,
    "posterior_encoder_num_wavenet_layers": 1,
    "speaking_rate": 2.0,
    "sampling_rate": RATE,
}


def write(folder: Path, config: Mapping[str, Any] | None = None, seed: int = 0) -> Path:
    """Write a checkpoint, with the same weights each time."""
    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(folder)
    values = {**SIZES, "vocab_size": len(LETTERS), **(config or {})}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = VitsModel(VitsConfig(**values))
        with torch.no_grad():
            for weight in model.parameters():
                # Durations would be those of the noise alone, and all waveforms silent.
                weight.add_(torch.randn_like(weight) * 0.1)
    model.save_pretrained(folder)
    return folder


def write_tokenizer(folder: Path, **settings: Any) -> VitsTokenizer:
    """Write a tokenizer of letters, and return it."""
    path = folder / "vocab.json"
    path.write_text(json.dumps({letter: number for number, letter in enumerate(LETTERS)}))
    tokenizer = VitsTokenizer(str(path), pad_token=LETTERS[0], **{"phonemize": False, **settings})
    tokenizer.save_pretrained(folder)
    return tokenizer
