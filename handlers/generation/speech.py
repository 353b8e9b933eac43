"""Speech that a model makes of the tokens of a text."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from handlers.runtime.model import ForwardOnlyModel


@dataclass(frozen=True)
class SpeechCall:
    """The call of a model for one text.

    Attributes:
        input_ids: the tokens of the text.
        seed: the seed of its noise.
        max_seconds: the maximum duration.
        speaker_id: the number of the speaker; None for the model without one.
        speaking_rate: the rate; None for the model's own, as of the others.
        noise_scale: how random the speech is.
        noise_scale_duration: how random the durations are.
    """

    input_ids: Sequence[int]
    seed: int
    max_seconds: float
    speaker_id: int | None = None
    speaking_rate: float | None = None
    noise_scale: float | None = None
    noise_scale_duration: float | None = None


class SpeechModel(ForwardOnlyModel, ABC):
    """A model that speaks texts."""

    @abstractmethod
    def speak(self, call: SpeechCall) -> npt.NDArray[np.float32]:
        """Return the waveform of one call. Shape: (samples,).

        Raises:
            RequestTooLarge: it would be longer than the call allows; it is not computed.
        """

    def forward(self, batch: Mapping[str, Any]) -> Mapping[str, Any]:
        raise NotImplementedError
