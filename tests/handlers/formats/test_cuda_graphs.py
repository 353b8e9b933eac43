"""Packed texts as on a GPU: in one row, with attention of variable length, and as graphs.

There is no GPU here. The function of torch is replaced by one that computes one text after another,
and a graph by a function that computes again what is in the buffer of its inputs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch.profiler import profile

from hf_serve.handlers.batching.padding import Padding, RunOptions, move_together
from hf_serve.handlers.batching.rows import Row, require_outputs
from hf_serve.handlers.batching.sequence_packing import PackedBatch, pack, run_packed, with_borders
from hf_serve.handlers.engine import Engine
from hf_serve.handlers.formats import cuda_graphs, packable
from hf_serve.handlers.formats.cuda_graphs import Shape, shapes
from hf_serve.handlers.formats.packable import MASKS, VARIABLE_LENGTH, Packable, no_mask
from hf_serve.handlers.formats.pretrained import PretrainedModel
from hf_serve.handlers.telemetry.metrics import Meter
from tests import families
from tests.handlers.test_batch_independence import assert_alike, of_module, outputs, texts

LENGTHS = (40, 7, 19, 3, 7)
# Operations that wait for the device, or whose output has a size that only the device knows.
WAITS = {"aten::item", "aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select"}


def attend_each(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    cu_seq_q: torch.Tensor,
    cu_seq_k: torch.Tensor,
    max_q: int,
    max_k: int,
    *,
    scale: float | None = None,
    window_size: tuple[int, int] = (-1, -1),
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Compute what torch's `varlen_attn` does; tokens outside of all texts become NaN."""
    assert cu_seq_q is cu_seq_k
    assert cu_seq_q.dtype == torch.int32
    attended = torch.full_like(query, torch.nan)
    left, right = (reach if reach >= 0 else max_k for reach in window_size)
    for start, end in pairwise(cu_seq_q.tolist()):
        assert end - start <= max_q
        places = torch.arange(end - start)
        distance = places[:, None] - places[None]
        found = torch.nn.functional.scaled_dot_product_attention(
            query[start:end].transpose(0, 1),
            key[start:end].transpose(0, 1),
            value[start:end].transpose(0, 1),
            (distance <= left) & (distance >= -right),
            scale=scale,
            enable_gqa=enable_gqa,
        )
        attended[start:end] = found.transpose(0, 1)
    return attended


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have modules on the CPU run as on a GPU."""
    monkeypatch.setattr(packable, "varlen_attn", attend_each)
    monkeypatch.setattr(packable, "variable_length_of", lambda _module: VARIABLE_LENGTH)
    monkeypatch.setattr(cuda_graphs, "CudaGraphs", lambda _device: lambda forward: forward)


def engine(family: str, mode: str = "token_classification", **values: Any) -> Engine:
    return families.engine(families.module(family, mode), mode, **values)


OTHERS = ["albert", "camembert", "electra", "ernie", "nomic_bert", "xlm-roberta"]
FAMILIES = ["bert", "roberta", "distilbert", "modernbert"]


@pytest.mark.parametrize("graphs", [True, pytest.param(False, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("mode", families.CLASSIFIER_MODES)
@pytest.mark.parametrize(
    "family", [*FAMILIES, *(pytest.param(each, marks=pytest.mark.nightly) for each in OTHERS)]
)
def test_texts_of_one_row_have_the_outputs_that_each_has_alone(
    family: str, mode: str, graphs: bool
) -> None:
    served = engine(family, mode, cuda_graphs=graphs)
    model: Any = served.model
    assert model.capabilities.packs_one_row
    assert (model._graphs is not None) == graphs
    rows = texts(LENGTHS)
    assert_alike(outputs(served, rows), [of_module(model.module, row) for row in rows])


@pytest.mark.parametrize("family", ["mpnet", "deberta-v2"])
def test_modules_without_the_interface_of_attention_keep_their_mask(family: str) -> None:
    assert not engine(family).model.capabilities.packs_one_row


def test_a_decoder_whose_head_reads_the_last_token_does_not_pool_packed_texts() -> None:
    model = engine("qwen2", "sequence_classification").model
    assert not model.capabilities.supports_packing


def test_attention_across_the_borders_is_found_by_the_trial(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def across(query: Any, key: Any, value: Any, borders: Any, *_: Any, **given: Any) -> Any:
        ends = borders[[0, -1]]
        return attend_each(query, key, value, ends, ends, 10**6, 10**6, **given)

    monkeypatch.setattr(packable, "varlen_attn", across)
    model = engine("bert").model
    assert model.capabilities.supports_packing
    assert not model.capabilities.packs_one_row


def test_recorded_trials_hold_where_there_is_attention_of_variable_length(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = families.module("bert", "token_classification")
    found = Packable(module, no_mask, None)
    assert Packable.of_numbers(module, *found.numbers) == found
    monkeypatch.setattr(packable, "variable_length_of", lambda _module: None)
    with pytest.raises(ValueError, match=str(found.numbers[0])):
        Packable.of_numbers(module, *found.numbers)


@pytest.mark.parametrize("name", ["softcap", "s_aux", "position_bias"])
def test_attention_that_the_function_of_torch_lacks_is_refused(name: str) -> None:
    vectors = torch.ones(1, 2, 3, 8)
    borders = torch.tensor([0, 3], dtype=torch.int32)
    changing: dict[str, Any] = {name: 1.0}
    with pytest.raises(NotImplementedError, match=name):
        packable.variable_length_attention(
            torch.nn.Identity(),
            *(vectors, vectors, vectors, None),
            cu_seq_lens_q=borders,
            max_length_q=3,
            **changing,
        )


def test_a_forward_of_one_row_has_fewer_operations_and_waits_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = families.module("bert", "token_classification").requires_grad_(requires_grad=False)
    monkeypatch.setattr(packable, "varlen_attn", lambda query, *_, **__: query)
    rows = texts(LENGTHS)
    masked = operations(Packable(module, MASKS[1], None), rows, [[0], [1, 2, 3, 4]])
    one_row = operations(Packable(module, no_mask, None), rows, [[0, 1, 2, 3, 4]])
    assert sum(one_row.values()) < sum(masked.values())
    assert not WAITS & one_row.keys()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_pooled_forward_waits_for_nothing(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model: Any = engine(family, "sequence_classification", cuda_graphs=False).model
    monkeypatch.setattr(packable, "varlen_attn", lambda query, *_, **__: query)
    assert not WAITS & operations(model._packable, texts(LENGTHS), [[0, 1, 2, 3, 4]]).keys()


def operations(found: Packable, rows: list[Row], groups: list[list[int]]) -> dict[str, int]:
    """Return how often each operation runs in a forward whose inputs are on the device."""
    inputs, longest = found.host_inputs(pack(rows, groups, Padding({})).inputs)
    with torch.inference_mode(), profile() as recorded:
        found.compute(inputs, longest)
    return {each.key: each.count for each in recorded.key_averages()}


def test_the_inputs_of_a_forward_are_one_transfer() -> None:
    inputs = with_borders(pack(texts(LENGTHS), [range(len(LENGTHS))], Padding({})).inputs)
    with profile() as recorded:
        moved = move_together(inputs, torch.device("meta"))
    counts = {each.key: each.count for each in recorded.key_averages()}
    assert counts["aten::_to_copy"] == 1
    assert {name: each.shape for name, each in moved.items()} == {
        name: each.shape for name, each in inputs.items()
    }


@pytest.mark.parametrize(
    ("ahead", "expected"),
    [(0, ["start", "read"] * 3), (1, ["start", "start", "read", "start", "read", "read"])],
)
def test_a_forward_starts_before_the_outputs_of_the_last_are_read(
    ahead: int, expected: list[str]
) -> None:
    rows, events = texts((20, 20, 20)), list[str]()

    def forward(packed: PackedBatch) -> dict[str, torch.Tensor]:
        events.append("start")
        return {"ids": packed.batch["input_ids"]}

    def read(_row: Row, found: Any) -> Any:
        events.append("read")
        return found

    options = RunOptions(Padding({}), 20, ("ids",), Meter(), read)
    found = run_packed(forward, rows, options, one_row=True, ahead=ahead)
    assert events == expected
    for row, outcome in zip(rows, require_outputs(found), strict=True):
        assert outcome["ids"].tolist() == row.features["input_ids"]


def test_shapes_are_few_and_hold_every_forward_within_the_budget() -> None:
    made = shapes(16_384, 512)
    assert len(made) < 60
    assert made[0] == Shape(16_384, 512)
    for tokens in range(1, 16_385, 7):
        fitting = [each for each in made if each.holds(tokens, 1, min(tokens, 512))]
        assert min(fitting).tokens <= max(64, tokens * 1.5)


def test_a_forward_takes_the_smallest_shape_that_holds_it(monkeypatch: Any) -> None:
    taken = list[tuple[int, int]]()
    model: Any = engine("bert", max_batch_tokens=256).model
    compute = Packable.compute

    def seen(found: Packable, inputs: Mapping[str, torch.Tensor], longest: int) -> Any:
        taken.append((inputs["input_ids"].shape[1], longest))
        return compute(found, inputs, longest)

    monkeypatch.setattr(Packable, "compute", seen)
    assert model._graphs.shapes[0] == Shape(64, 128)
    for lengths in ((7, 7), (40, 30, 20), (200, 3)):
        rows = texts(lengths)
        model.forward_packed(pack(rows, [range(len(rows))], Padding({})))
    assert taken == [(64, 128), (96, 128), (256, 256)]


@pytest.mark.parametrize("fails", ["record", "differs"])
def test_a_model_whose_graphs_fail_runs_without_them(
    fails: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def record(forward: Callable[[], Any]) -> Callable[[], Any]:
        if fails == "record":
            raise RuntimeError("operation not permitted when stream is capturing")
        return lambda: {name: output + 1 for name, output in forward().items()}

    monkeypatch.setattr(cuda_graphs, "CudaGraphs", lambda _device: record)
    with caplog.at_level(logging.WARNING):
        served = engine("bert")
    model: PretrainedModel = served.model  # type: ignore[assignment]
    assert caplog.text.count("CUDA graphs are not possible") == 1
    assert model._graphs is None
    rows = texts(LENGTHS)
    assert_alike(outputs(served, rows), [of_module(model.module, row) for row in rows])
