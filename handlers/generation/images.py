"""Images that a model makes of texts, step by step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from handlers.runtime.model import ForwardOnlyModel


@dataclass(frozen=True)
class ImageCall:
    """The call of a pipeline for one image.

    Attributes:
        prompt: the text.
        seed: the seed of its noise.
        scheduler: the name of diffusers' scheduler; None for the checkpoint's own.
        parameters: further parameters of the pipeline, which has defaults for others.
    """

    prompt: str
    seed: int
    scheduler: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PipelineImage:
    """An image as a pipeline returns it.

    Attributes:
        pixels: numbers from 0 to 1. Shape: (height, width, 3).
        flagged: whether a safety checker of the checkpoint made it black; None without one.
    """

    pixels: npt.NDArray[np.float32]
    flagged: bool | None = None


class ImageModel(ForwardOnlyModel, ABC):
    """A model that makes images of texts."""

    @property
    @abstractmethod
    def schedulers(self) -> tuple[str, ...]:
        """The schedulers that a call may name."""

    @abstractmethod
    def draw(self, call: ImageCall, on_step: Callable[[int, int], None]) -> PipelineImage:
        """Return the image of one call.

        Args:
            call: the call.
            on_step: is called after each step with its number, from 1, and the number of steps.
                What it raises ends the call.

        Raises:
            Unprocessable: the pipeline does not take these parameters.
        """

    def forward(self, batch: Mapping[str, Any]) -> Mapping[str, Any]:
        raise NotImplementedError
