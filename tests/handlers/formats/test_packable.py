"""A trial run shows whether a module has the same outputs for packed texts as for single ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForTokenClassification, PreTrainedModel

from hf_serve.handlers.batching.padding import Padding
from hf_serve.handlers.config.handler_section import HandlerSection
from hf_serve.handlers.formats import packable as packing
from hf_serve.handlers.formats.packable import MASKS, Packable, mask_by_layer_type
from tests import families

DTYPES = [torch.float32, torch.bfloat16]
WINDOWS = [32, 128]  # ModernBERT's own is 128, wider than a row of texts usually is
MODES = ["token_classification", "sequence_classification"]
LOGITS = ("logits",)


@pytest.mark.parametrize("dtype", DTYPES)
def test_packed_texts_have_the_outputs_of_single_texts(
    checkpoint: Callable[..., Path], dtype: torch.dtype
) -> None:
    assert packable(attentive(checkpoint, dtype), "token_classification")


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_module_whose_packed_texts_see_each_other_is_not_packable(
    checkpoint: Callable[..., Path], dtype: torch.dtype, monkeypatch: Any
) -> None:
    everyone: Any = lambda _module, same, _distance: torch.ones_like(same)[:, None]  # noqa: E731
    monkeypatch.setattr(packing, "MASKS", (everyone,))
    assert not packable(attentive(checkpoint, dtype), "token_classification")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_layers_with_local_attention_have_a_mask_of_their_window(
    dtype: torch.dtype, window: int, mode: str
) -> None:
    found = packable(modernbert(mode, window, dtype), mode)
    assert found
    assert found.mask is mask_by_layer_type


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_mask_without_the_window_is_not_taken(
    dtype: torch.dtype, window: int, mode: str, monkeypatch: Any
) -> None:
    others = tuple(mask for mask in MASKS if mask is not mask_by_layer_type)
    monkeypatch.setattr(packing, "MASKS", others)
    assert not packable(modernbert(mode, window, dtype), mode)


def test_a_window_that_is_too_wide_to_try_is_not_packed() -> None:
    mode = "token_classification"
    module = families.module("modernbert", mode, local_attention=700, max_position_embeddings=1024)
    assert not packable(module, mode)


@pytest.mark.parametrize(
    ("family", "values"),
    [
        ("llama", {}),
        ("qwen2", {}),
        ("gemma", {}),
        ("gemma", {"use_bidirectional_attention": True}),
        ("mistral", {}),
        ("gpt_neox", {}),
    ],
)
def test_no_trial_of_a_decoder_has_an_index_out_of_bounds(
    family: str, values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """CUDA ends all work of a process that has one."""

    def succeeds(trial: Callable[[Packable], bool], packable: Packable) -> bool:
        try:
            return trial(packable)
        except IndexError as error:
            pytest.fail(str(error))
        except Exception:  # noqa: BLE001 - each family refuses a mask in its own way
            return False

    monkeypatch.setattr(packing, "_succeeds", succeeds)
    for mode in MODES:
        packable(families.module(family, mode, **values), mode)


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


def modernbert(mode: str, window: int, dtype: torch.dtype) -> PreTrainedModel:
    return families.module("modernbert", mode, local_attention=window).to(dtype)


def packable(module: PreTrainedModel, mode: str) -> Packable | None:
    checkpoint = families.checkpoint(module, HandlerSection(mode=mode))
    trial = checkpoint.probe_rows(checkpoint.limit)
    per_token = LOGITS if mode == "token_classification" else ()
    return packing.as_packable(module, trial, Padding({}), LOGITS, per_token)
