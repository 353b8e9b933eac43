from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from handlers import tasks
from handlers.batching.packing import PackedBatch
from handlers.config.choices import modes
from handlers.config.model_config import ModelConfig
from handlers.engine import Engine
from handlers.formats.pretrained import PretrainedModel
from handlers.schemas.request import Request
from handlers.tasks._audio import AudioTask
from handlers.tasks._text import TextTask
from tests.samples import FINE, requests_of
from tests.serving import Served
from tests.sounds import encoded, file_of, sound_of

MODE = "sequence_classification"
A_SECOND = encoded(file_of(sound_of(1, 1.0)))
# Their models run images or audio in their own sizes, of which torch compiles several kinds.
KEEPS_SIZES = (
    "audio_classification",
    "automatic_speech_recognition",
    "depth_estimation",
    "image_segmentation",
    "visual_question_answering",
)


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
    monkeypatch.setattr(PretrainedModel, "compiles_shapes", True)
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


# Every mode compiles the same forward passes, of which one mode is enough for `make test`.
@pytest.mark.parametrize(
    "mode",
    [
        mode if mode == MODE else pytest.param(mode, marks=pytest.mark.nightly)
        for mode in modes()
        if not tasks.get(mode).generates
        and tasks.get(mode).one_forward
        and not tasks.get(mode).draws
    ],
)
def test_nothing_is_compiled_for_the_first_request(
    checkpoint: Callable[..., Path], monkeypatch: Any, mode: str
) -> None:
    """The backend is called at load only, whatever requests come later."""
    graphs: list[Any] = []

    def backend(graph: Any, _inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    torch.compiler.reset()
    original = torch.compile
    monkeypatch.setattr(
        torch, "compile", lambda model, **kw: original(model, **{**kw, "backend": backend})
    )
    document = {
        "handler": {"mode": mode, "dtype": "float32"},
        "pt2": {"compile": {"enable": True, "backend": "eager"}},
    }
    engine = Engine.load(checkpoint(mode), ModelConfig.parse(document))
    compiled_at_load = len(graphs)
    assert compiled_at_load
    kept_sizes = mode in KEEPS_SIZES
    of_warmup = A_SECOND if isinstance(engine.task, AudioTask) else engine.task.sample["inputs"]
    inputs = [of_warmup] if kept_sizes else [each for each, _ in requests_of(mode)]
    requests = [Request(each) for each in inputs]
    for request in requests:
        engine.predict([request])
    engine.predict([*requests, *requests])
    assert len(graphs) == compiled_at_load


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
