"""A trial run shows whether a module has the same outputs for packed texts as for single ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForTokenClassification, PreTrainedModel

from handlers.batching.padding import Padding
from handlers.formats import _packable

DTYPES = [torch.float32, torch.bfloat16]


@pytest.mark.parametrize(
    ("found", "alike"), [([0.6, 47.0], True), ([0.6, -0.3], False), ([20.0, 47.0], False)]
)
def test_the_tolerance_depends_on_the_largest_logit(found: list[float], alike: bool) -> None:
    expected = [np.array([0.0, found[1]]), np.array([1.0])]
    assert _packable._close([np.array(found), np.array([1.0])], expected, 5e-2) == alike


@pytest.mark.parametrize("dtype", DTYPES)
def test_packed_texts_have_the_outputs_of_single_texts(
    checkpoint: Callable[..., Path], dtype: torch.dtype
) -> None:
    assert packs(attentive(checkpoint, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_module_whose_packed_texts_see_each_other_is_not_packable(
    checkpoint: Callable[..., Path], dtype: torch.dtype, monkeypatch: Any
) -> None:
    everyone: Any = lambda same: torch.ones_like(same)[:, None]  # noqa: E731
    monkeypatch.setattr(_packable, "MASKS", (everyone,))
    assert not packs(attentive(checkpoint, dtype))


def attentive(checkpoint: Callable[..., Path], dtype: torch.dtype) -> PreTrainedModel:
    """Return a model that attends to some tokens more than to others."""
    folder = checkpoint("token_classification")
    found: Any = AutoModelForTokenClassification.from_pretrained(folder, dtype=dtype)
    with torch.no_grad():
        for layer in found.bert.encoder.layer:
            layer.attention.self.query.weight *= 20
            layer.attention.self.key.weight *= 20
            layer.attention.self.value.weight *= 20
    model: PreTrainedModel = found.eval()
    return model


def packs(module: PreTrainedModel) -> bool:
    return _packable.as_packable(module, Padding({}), ("logits",), ("logits",)) is not None
