"""Rows that do not fit in memory together are computed in parts."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

from hf_serve.handlers import tasks
from hf_serve.handlers.batching.padding import Padding, RunOptions, run_padded
from hf_serve.handlers.batching.rows import Row
from hf_serve.handlers.errors import OutOfMemory
from hf_serve.handlers.telemetry.metrics import Meter
from hf_serve.handlers.types.request import Request
from tests.modes import each_mode
from tests.samples import INPUTS, explained_text_modes, text_modes
from tests.serving import Served, differences

Load = Callable[..., Served]


@pytest.fixture
def small(served: Load, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """An engine whose passes may have so many tokens: `small(mode, tokens)`."""

    def load(mode: str, tokens: int, **handler: Any) -> Any:
        engine = served(mode, **handler).engine
        for name in ("forward", "forward_packed", "forward_with_gradients", "generate"):
            run = getattr(engine.model, name)
            monkeypatch.setattr(engine.model, name, limited(run, tokens))
        return engine

    return load


def limited(run: Callable[..., Any], tokens: int) -> Callable[..., Any]:
    def forward(batch: Any, *rest: Any, **options: Any) -> Any:
        inputs = batch.batch if hasattr(batch, "segments") else batch
        if inputs["input_ids"].numel() > tokens:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return run(batch, *rest, **options)

    return forward


@pytest.mark.parametrize("mode", each_mode(text_modes()))
@pytest.mark.parametrize("packs", [True, pytest.param(False, marks=pytest.mark.nightly)])
def test_a_batch_that_does_not_fit_is_computed_in_halves(
    served: Load, small: Any, mode: str, packs: bool
) -> None:
    requests = [Request(inputs, is_batch_item=True) for inputs in INPUTS[mode]] * 4
    keys = {"BetterTransformer": packs}
    expected = served(mode, **keys).engine.predict(requests)
    found = small(mode, 300, **keys).predict(requests)
    assert not differences(found, expected, 1e-4)


def test_only_a_row_that_alone_does_not_fit_is_refused(small: Any) -> None:
    engine = small("sequence_classification", 64, BetterTransformer=False)
    *fine, long = engine.predict([Request("A fine film")] * 7 + [Request("lovely " * 100)])
    assert all(isinstance(each, list) for each in fine)
    assert isinstance(long, OutOfMemory)
    assert long.status == 507
    assert "send fewer or shorter texts" in str(long)


@pytest.mark.parametrize(
    "mode",
    each_mode(
        mode for mode in explained_text_modes() if not tasks.get(mode).description.generation.texts
    ),
)
@pytest.mark.parametrize("method", ["feature_ablation", "layer_integrated_gradients"])
def test_an_explanation_that_does_not_fit_is_computed_in_smaller_passes(
    served: Load, small: Any, mode: str, method: str
) -> None:
    requests = [Request(INPUTS[mode][0], {"method": method})] * 2
    expected = served(mode).engine.explain(requests)
    found = small(mode, 200).explain(requests)
    assert all(isinstance(each, dict) for each in found), found
    assert not differences(found, expected, 1e-3)


def test_the_tensors_of_a_pass_that_did_not_fit_are_freed() -> None:
    tensors: list[weakref.ref[torch.Tensor]] = []

    def forward(batch: Any) -> Any:
        activations = torch.ones(8)
        tensors.append(weakref.ref(activations))
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    gc.disable()
    try:
        outcomes = run_padded(
            forward,
            [Row({"input_ids": [1, 2]}), Row({"input_ids": [3]})],
            RunOptions(padding=Padding({}), budget=8, per_token=(), meter=Meter()),
        )
        assert all(isinstance(outcome, OutOfMemory) for outcome in outcomes)
        assert tensors
        assert not any(tensor() is not None for tensor in tensors)
    finally:
        gc.enable()
