"""A small VITS learns to whistle texts: each letter has a pitch of its own.

Speech takes days to learn. What the model makes is as long as its text, and can be heard and
measured.
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

from scripts.kit.demo_models.batches import Feature
from scripts.kit.demo_models.lessons.base import Lesson
from scripts.kit.demo_models.score import mean
from scripts.kit.demo_models.training import Plan

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


class TextToSpeech(Lesson):
    """Words of random letters, and their whistle."""

    plan = Plan(rows=2400, batch=16, rate=4e-3)
    exam_rows = 40

    def start(self, seed: int) -> tuple[Any, Any]:
        """Return a VITS with random weights, and its tokenizer."""
        return VitsModel(VitsConfig(**CONFIG)), _tokenizer()

    def trained(self, model: Any) -> Any:
        """Return the error of a VITS, which has none of its own."""
        return _Whistling(model)

    def features(self, tokenizer: Any, rows: int, seed: int) -> list[Feature]:
        """Write words with their whistle."""
        rng = Random(f"train {seed}")
        words = [_word(rng) for _ in range(rows)]
        return [
            {"ids": torch.tensor(tokenizer(word)["input_ids"]), "waves": _whistle(word)}
            for word in words
        ]

    def examine(self, model: Any, tokenizer: Any, rows: int, seed: int) -> dict[str, float]:
        """Return the share of letters with the right pitch, and of words with the right length."""
        rng = Random(f"held out {seed}")
        words = [_word(rng) for _ in range(rows)]
        spoken = [_spoken(model, tokenizer, word) for word in words]
        pairs = list(zip(spoken, words, strict=True))
        right = [
            heard == letter
            for wave, word in pairs
            for heard, letter in zip(_heard(wave), word, strict=False)
        ]
        lengths = (len(wave) == len(word) * LETTER_FRAMES * FRAME for wave, word in pairs)
        return {"pitch": mean(right), "length": mean(lengths)}


class _Whistling(nn.Module):
    """The error of the waveforms and durations of a VITS, as `fit` trains it."""

    config = None

    def __init__(self, vits: Any) -> None:
        super().__init__()
        self.vits = vits
        # Only training of whole VITS models, against a discriminator, has a use for it.
        vits.posterior_encoder.requires_grad_(False)

    def forward(self, ids: torch.Tensor, waves: torch.Tensor) -> Any:
        mask = torch.ones(len(ids), ids.shape[1], 1)
        encoded = self.vits.text_encoder(input_ids=ids, padding_mask=mask)
        states = encoded.last_hidden_state.transpose(1, 2)
        durations = self.vits.duration_predictor(states, mask.transpose(1, 2))
        means, scales = (
            each.repeat_interleave(LETTER_FRAMES, dim=1).transpose(1, 2)
            for each in (encoded.prior_means, encoded.prior_log_variances.exp())
        )
        noisy = means + torch.randn_like(means) * scales * self.vits.noise_scale
        latents = self.vits.flow(noisy, torch.ones_like(noisy[:, :1]), None, reverse=True)
        found = self.vits.decoder(latents, None).squeeze(1)
        error = nn.functional.mse_loss(found, waves) + durations.sub(LOG_FRAMES).square().mean()
        return SimpleNamespace(loss=error)


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


LESSON = TextToSpeech()
