"""Runs VITS with torch, one text after the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import PreTrainedModel

from handlers.errors import RequestTooLarge
from handlers.process.ranks import seeded
from handlers.tasks.text_to_speech import SpeechCall, SpeechModel

# Attributes of the module, which has no arguments for most of them.
SETTINGS = ("speaking_rate", "noise_scale", "noise_scale_duration")


class VitsModel(SpeechModel):
    """A module of VITS.

    Args:
        module: the module.
    """

    def __init__(self, module: PreTrainedModel) -> None:
        self.module: Any = module
        self._frames_per_second = module.config.sampling_rate / prod(module.config.upsample_rates)

    @property
    def full_precision(self) -> bool:
        return bool(self.module.dtype == torch.float32)

    @torch.inference_mode()
    def speak(self, call: SpeechCall) -> npt.NDArray[np.float32]:
        ids = torch.tensor([call.input_ids], device=self.module.device)
        with self._set(call), self._limited(call.max_seconds), seeded(call.seed):
            spoken = self.module(
                input_ids=ids, attention_mask=torch.ones_like(ids), speaker_id=call.speaker_id
            )
        waveform: npt.NDArray[np.float32] = spoken.waveform[0].float().cpu().numpy()
        return waveform

    @contextmanager
    def _set(self, call: SpeechCall) -> Iterator[None]:
        """Set the attributes of the module that a call names within the block."""
        own = {name: getattr(self.module, name) for name in SETTINGS}
        try:
            for name, value in own.items():
                given = getattr(call, name)
                setattr(self.module, name, value if given is None else given)
            yield
        finally:
            for name, value in own.items():
                setattr(self.module, name, value)

    @contextmanager
    def _limited(self, max_seconds: float) -> Iterator[None]:
        """Check durations within the block, before anything is computed for their frames."""

        def check(_predictor: Any, _inputs: Any, log_durations: torch.Tensor) -> None:
            durations = torch.ceil(torch.exp(log_durations.float()) / self.module.speaking_rate)
            seconds = float(durations.sum()) / self._frames_per_second
            # NaN is not less than a number either.
            if not seconds <= max_seconds:
                raise RequestTooLarge(
                    f"The speech would have {seconds:,.1f} seconds, and this model speaks"
                    f" {max_seconds:,g}; send the text in parts, or a higher speaking_rate."
                )

        hook = self.module.duration_predictor.register_forward_hook(check)
        try:
            yield
        finally:
            hook.remove()
