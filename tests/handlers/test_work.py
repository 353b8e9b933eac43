"""The cost of a fixed set of rows, counted in tokens and calls; time depends on the machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from transformers import PreTrainedTokenizerBase

from benchmarks.texts import mixed_inputs
from hf_serve.handlers import tasks
from hf_serve.handlers.batching.sequence_packing import PackedBatch
from hf_serve.handlers.config.handler_section import modes
from hf_serve.handlers.telemetry.metrics import Meter
from hf_serve.handlers.types.request import Request
from tests.modes import cases
from tests.serving import Served

ROWS = 64
TOKENS = 1978  # in all 64 rows, of 8 to 128 tokens; padded to the longest they would be 8,192
COUNTED = [
    mode
    for mode in modes()
    if tasks.get(mode).description.rows.supports_packing and not cases(mode).adds_words
]


@dataclass(frozen=True)
class Bounds:
    """Upper limits of the cost: tokens computed, share of padding among them, forward calls."""

    slots: int
    padding: float
    forwards: int


# By how rows are run, and by the size of TorchServe's batch.
BOUNDS = {
    ("packed", 64): Bounds(slots=2048, padding=0.04, forwards=2),
    ("packed", 16): Bounds(slots=2128, padding=0.07, forwards=4),
    ("padded", 64): Bounds(slots=2816, padding=0.30, forwards=4),
    ("padded", 16): Bounds(slots=2816, padding=0.30, forwards=14),
}


@pytest.mark.parametrize("mode", COUNTED)
@pytest.mark.parametrize(("run_as", "together"), BOUNDS)
def test_mixed_rows_need_little_padding_and_few_calls(
    served: Callable[..., Served], mode: str, run_as: str, together: int
) -> None:
    bounds, meter = BOUNDS[run_as, together], Meter()
    engine = served(mode, BetterTransformer=run_as == "packed").engine
    assert engine.model.capabilities.supports_packing == (run_as == "packed")
    requests = [
        Request(each) for each in mixed_inputs(mode, engine.task.checkpoint.tokenizer, ROWS, seed=0)
    ]
    for first in range(0, ROWS, together):
        engine.predict(requests[first : first + together], meter)
    assert meter.counts["tokens"] == TOKENS
    assert meter.counts["slots"] <= bounds.slots
    assert meter.padding_share <= bounds.padding
    assert meter.counts["forwards"] <= bounds.forwards


@pytest.mark.parametrize("mode", COUNTED)
def test_all_rows_of_a_batch_are_tokenized_in_one_call(
    served: Callable[..., Served], mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, calls = served(mode).engine, list[Any]()
    tokenize: Callable[..., Any] = PreTrainedTokenizerBase.__call__

    def counted(tokenizer: PreTrainedTokenizerBase, *texts: Any, **options: Any) -> Any:
        calls.append(texts)
        return tokenize(tokenizer, *texts, **options)

    requests = [
        Request(each) for each in mixed_inputs(mode, engine.task.checkpoint.tokenizer, ROWS, seed=0)
    ]
    monkeypatch.setattr(PreTrainedTokenizerBase, "__call__", counted)
    engine.predict(requests)
    assert len(calls) == 1


def test_packed_rows_have_few_shapes(served: Callable[..., Served], monkeypatch: Any) -> None:
    """Some engines compile for each new shape."""
    engine, shapes = served("sequence_classification").engine, set[Any]()
    model = type(engine.model)
    forward: Callable[..., Any] = model.forward_packed

    def seen(model: Any, packed: PackedBatch) -> Any:
        shapes.add(tuple(packed.segments.shape))
        return forward(model, packed)

    monkeypatch.setattr(model, "forward_packed", seen)
    rows = mixed_inputs("sequence_classification", engine.task.checkpoint.tokenizer, 512, seed=1)
    for first in range(0, len(rows), 16):
        engine.predict([Request(each) for each in rows[first : first + 16]])
    assert len(shapes) <= 16
    assert all(width % 16 == 0 and width <= 160 for _, width in shapes)


def test_only_first_vectors_are_computed_after_the_last_attention(
    served: Callable[..., Served], monkeypatch: Any
) -> None:
    engine, computed = served("sequence_classification").engine, list[int]()
    model: Any = engine.model
    last = model.module.base_model.encoder.layer[-1].intermediate
    compute = last.forward

    def counted(vectors: Any) -> Any:
        computed.append(len(vectors))
        return compute(vectors)

    monkeypatch.setattr(last, "forward", counted)
    rows = mixed_inputs("sequence_classification", engine.task.checkpoint.tokenizer, 16, seed=0)
    engine.predict([Request(each) for each in rows])
    assert sum(computed) == 16
