"""Logits to scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def softmax(logits: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return probabilities that sum to 1 along the last axis."""
    shifted = np.exp(np.subtract(logits, logits.max(axis=-1, keepdims=True), dtype=np.float64))
    return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True))


def sigmoid(logits: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return each logit's own probability, without overflow for large negative ones."""
    return np.asarray(0.5 * (1 + np.tanh(0.5 * np.asarray(logits, dtype=np.float64))))
