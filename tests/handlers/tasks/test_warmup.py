from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hf_serve.handlers.batching.sequence_packing import PackedBatch
from hf_serve.handlers.config.model_config import WARM_UP, ModelConfig
from hf_serve.handlers.formats.pretrained import PretrainedModel
from hf_serve.handlers.tasks.bases.text import TextTask
from tests.samples import FINE
from tests.serving import Served

MODE = "sequence_classification"


def config(**settings: Any) -> ModelConfig:
    return ModelConfig.parse(
        {"batchSize": 8, "handler": {"mode": MODE, "warmup_lengths": [12, 30, 999], **settings}}
    )


def test_declared_lengths_are_run_with_few_rows_many_rows_and_one_row(served: Any) -> None:
    engine = served(MODE).engine
    task = engine.task
    assert isinstance(task, TextTask)
    batches = task.warmup_batches(config(), engine.model)
    shapes = [(len(rows), len(rows[0])) for rows in batches]
    widths = (12, 30, task.max_tokens)
    assert shapes == [(rows, width) for rows in (2, 8, 1) for width in widths]
    assert max(rows * width for rows, width in shapes) <= task.budget
    assert "token_type_ids" in batches[0][0].features


def test_single_rows_have_few_widths_if_shapes_compile_and_requests_add_none(
    checkpoint: Callable[..., Path], monkeypatch: Any
) -> None:
    widths: list[int] = []
    original = PretrainedModel.forward_packed

    def counted(model: PretrainedModel, packed: PackedBatch) -> Any:
        widths.extend([packed.segments.shape[1]] if len(packed.segments) == 1 else [])
        return original(model, packed)

    monkeypatch.setattr(PretrainedModel, "forward_packed", counted)
    pack = PretrainedModel.pack

    def compiled(model: PretrainedModel, *given: Any) -> bool:
        packs = pack(model, *given)
        model.capabilities = replace(model.capabilities, compiles_shapes=True)
        return packs

    monkeypatch.setattr(PretrainedModel, "pack", compiled)
    model = Served(checkpoint(MODE), MODE)
    at_load = set(widths)
    for words in range(1, 30):
        model.ask("fine " * words)
    assert all(width % 16 == 0 for width in at_load)
    assert set(widths) == at_load
    assert len(at_load) <= 10


@pytest.mark.parametrize("packs", [True, False])
def test_warm_up_runs_rows_as_requests_run(
    checkpoint: Callable[..., Path], monkeypatch: Any, packs: bool
) -> None:
    ran: list[str] = []
    for name in ("forward", "forward_packed"):
        original = getattr(PretrainedModel, name)

        def counted(*given: Any, name: str = name, original: Any = original) -> Any:
            ran.append(name)
            return original(*given)

        monkeypatch.setattr(PretrainedModel, name, counted)
    Served(checkpoint(MODE), MODE, BetterTransformer=packs)
    # One row alone is never packed.
    assert set(ran) == ({"forward", "forward_packed"} if packs else {"forward"})


def test_without_warm_up_a_model_that_compiles_nothing_runs_its_trials_and_one_sample(
    checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    warmed: list[Any] = []
    monkeypatch.setattr(TextTask, "run_warmup", lambda *given: warmed.append(given))
    monkeypatch.setenv(WARM_UP, "off")
    model = Served(checkpoint(MODE), MODE)
    assert not warmed
    assert model.engine.model.capabilities.supports_packing
    assert model.ask(FINE)

    monkeypatch.setattr(
        PretrainedModel,
        "pack",
        lambda model, *_: setattr(
            model, "capabilities", replace(model.capabilities, compiles_shapes=True)
        ),
    )
    Served(checkpoint(MODE), MODE)
    assert len(warmed) == 1


def test_a_failed_warm_up_does_not_stop_the_load(
    checkpoint: Callable[..., Path], monkeypatch: Any, caplog: Any
) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr(PretrainedModel, "forward", broken)
        model = Served(checkpoint(MODE), MODE)
    assert "warm-up failed (RuntimeError)" in caplog.text
    assert model.ask(FINE)
