"""A small VITS learns to whistle texts: each letter has its pitch.

Speech takes days to learn. All letters have the same duration, which is set and not learned; the
pitches are learned.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from random import Random
from string import ascii_lowercase
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from transformers import VitsConfig, VitsModel, VitsTokenizer

from hf_serve.demo_models.evaluation import mean
from hf_serve.demo_models.trainers.base import Trainer
from hf_serve.demo_models.training import Feature, Plan

RATE = 8_000
UPSAMPLING = (8, 8)
# Samples of a frame. All pitches are multiples of 125 Hz, so that frames of one are alike.
FRAME = 64
LOWEST = 3
LETTER_FRAMES = 12
# A duration is the next whole number of frames.
LOG_FRAMES = math.log(LETTER_FRAMES - 0.5)
WORD = 8
# The token of padding, a pause, and the letters from the lowest pitch to the highest.
VOCABULARY = f"_ {ascii_lowercase}"
CONFIG: dict[str, Any] = {
    "vocab_size": len(VOCABULARY),
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "ffn_dim": 64,
    "flow_size": 32,
    "spectrogram_bins": 9,
    "use_stochastic_duration_prediction": False,
    "upsample_initial_channel": 64,
    "upsample_rates": UPSAMPLING,
    "upsample_kernel_sizes": (16, 16),
    "resblock_kernel_sizes": (3,),
    "resblock_dilation_sizes": ((1, 3),),
    "duration_predictor_filter_channels": 32,
    "prior_encoder_num_flows": 2,
    "prior_encoder_num_wavenet_layers": 1,
    "posterior_encoder_num_wavenet_layers": 1,
    "sampling_rate": RATE,
}


class TextToSpeech(Trainer):
    """Words of random letters, and their whistle."""

    plan = Plan(rows=2400, batch=16, rate=4e-3)
    evaluation_rows = 40

    def start(self, seed: int) -> tuple[Any, Any]:
        """Return a VITS with random weights and fixed durations, and its tokenizer."""
        model = VitsModel(VitsConfig(**CONFIG))
        # The posterior encoder is for training against a discriminator alone.
        for part in (model.posterior_encoder, model.duration_predictor):
            part.requires_grad_(False)
        model.duration_predictor.proj.weight.zero_()
        model.duration_predictor.proj.bias.fill_(LOG_FRAMES)
        return model, _tokenizer()

    def trained(self, model: Any) -> Any:
        """Return the error of a VITS, which transformers does not compute."""
        return _Whistling(model)

    def features(self, tokenizer: Any, rows: int, seed: int) -> list[Feature]:
        """Write words with their whistle."""
        rng = Random(f"train {seed}")
        words = [_word(rng) for _ in range(rows)]
        return [
            {"ids": torch.tensor(tokenizer(word)["input_ids"]), "waveforms": _whistle(word)}
            for word in words
        ]

    def evaluate(self, model: Any, tokenizer: Any, rows: int, seed: int) -> dict[str, float]:
        """Return the share of letters with the right pitch."""
        rng = Random(f"held out {seed}")
        words = [_word(rng) for _ in range(rows)]
        spoken = [_spoken(model, tokenizer, word) for word in words]
        pairs = zip(map(_heard, spoken), words, strict=True)
        letters = [pair for heard, word in pairs for pair in zip(heard, word, strict=True)]
        return {"pitch": mean(heard == letter for heard, letter in letters)}


class _Whistling(nn.Module):
    """The error of the waveforms of a VITS, as `fit` trains it."""

    config = None

    def __init__(self, vits: Any) -> None:
        super().__init__()
        self.vits = vits

    def forward(self, ids: torch.Tensor, waveforms: torch.Tensor) -> Any:
        mask = torch.ones(len(ids), ids.shape[1], 1)
        encoded = self.vits.text_encoder(input_ids=ids, padding_mask=mask)
        means, scales = (
            each.repeat_interleave(LETTER_FRAMES, dim=1).transpose(1, 2)
            for each in (encoded.prior_means, encoded.prior_log_variances.exp())
        )
        noisy = means + torch.randn_like(means) * scales * self.vits.noise_scale
        latents = self.vits.flow(noisy, torch.ones_like(noisy[:, :1]), None, reverse=True)
        found = self.vits.decoder(latents, None).squeeze(1)
        return SimpleNamespace(loss=nn.functional.mse_loss(found, waveforms))


def _tokenizer() -> VitsTokenizer:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "vocab.json"
        path.write_text(json.dumps({letter: at for at, letter in enumerate(VOCABULARY)}))
        return VitsTokenizer(str(path), pad_token="_", phonemize=False, add_blank=False)  # noqa: S106


def _word(rng: Random) -> str:
    """Return letters, and now and then a pause between them."""
    middle = "".join(rng.choice(f"{ascii_lowercase}  ") for _ in range(WORD - 2))
    return f"{rng.choice(ascii_lowercase)}{middle}{rng.choice(ascii_lowercase)}"


def _whistle(word: str) -> torch.Tensor:
    """Return the waveform of a word. Shape: (samples,)."""
    times = np.arange(LETTER_FRAMES * FRAME) / FRAME
    parts = [
        0.5 * np.sin(2 * np.pi * harmonic * times) if (harmonic := _harmonic(letter)) else 0 * times
        for letter in word
    ]
    return torch.from_numpy(np.concatenate(parts).astype(np.float32))


def _harmonic(letter: str) -> int:
    """Return the multiple of the lowest frequency that is the pitch of a letter; 0 for a pause."""
    return 0 if letter == " " else LOWEST + ascii_lowercase.index(letter)


@torch.no_grad()
def _spoken(model: Any, tokenizer: Any, word: str) -> npt.NDArray[np.float32]:
    waveform: npt.NDArray[np.float32] = model(**tokenizer(word, return_tensors="pt")).waveform[0]
    return np.asarray(waveform)


def _heard(wave: npt.NDArray[np.float32]) -> str:
    """Return the letter whose pitch is the loudest in the middle of each letter's time."""
    size = LETTER_FRAMES * FRAME
    letters = ""
    for start in range(0, len(wave) - size + 1, size):
        middle = wave[start + 2 * FRAME : start + size - 2 * FRAME]
        if np.abs(middle).max() < 0.1:
            letters += " "
            continue
        loudness = np.abs(np.fft.rfft(middle))[:: len(middle) // FRAME]
        letters += ascii_lowercase[int(loudness[LOWEST : LOWEST + 26].argmax())]
    return letters


TRAINER = TextToSpeech()
