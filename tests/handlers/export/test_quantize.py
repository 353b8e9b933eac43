"""Which blocks of a graph are quantized, and what the others compute in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hf_serve.handlers.config.handler_section import Quantization
from hf_serve.handlers.export.fidelity import compare_outputs
from hf_serve.handlers.export.fidelity_report import FidelityReport
from hf_serve.handlers.export.quantize import (
    FLOAT32_SETTINGS,
    AccuracyTarget,
    Quantized,
    _mask_padding,
    quantize,
)

MASK = np.array([[True, True, True], [True, True, False]])


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4), (2, 4)], ids=["ends", "tokens", "texts"])
def test_padding_is_not_compared(shape: tuple[int, ...]) -> None:
    logits = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    other = logits.copy()
    if shape[:2] == MASK.shape:
        other[~MASK] = 9
    found = compare_outputs([_kept(logits)], [_kept(other)])
    assert found.label_agreement == 1
    assert found.largest_score_difference == 0


def _kept(values: Any) -> dict[str, Any]:
    return {"logits": _mask_padding(values, MASK)}


NAMES = (
    "__module.module.bert.embeddings.word_embeddings/Gather",
    *(
        f"__module.module.bert.encoder.layer.{layer}.{part}/MatMul"
        for layer in (0, 1)
        for part in ("attention.self.query", "attention.output.dense", "intermediate.dense")
    ),
    "__module.module.classifier/MatMul",
)
BLOCKS = ("embeddings", "0.att", "0.int", "1.att", "1.int", "classifier")
# The error of the logits for each block that is quantized, and for bfloat16.
SENSITIVE = "1.int"
ERRORS = {block: 2.5 if block == SENSITIVE else 0.01 for block in BLOCKS}
FEEDS = [{"attention_mask": np.array([[1, 1]])}]
BF16: dict[str, int | str] = {"INFERENCE_PRECISION_HINT": "bf16", "INFERENCE_NUM_THREADS": 3}
AUTO = {"bfloat16": BF16, "float32": FLOAT32_SETTINGS}


@dataclass(frozen=True)
class Graph:
    """A stand-in for OpenVINO's model of two layers: which blocks are quantized."""

    quantized: frozenset[str] = frozenset()
    outputs: Any = field(default_factory=lambda: [SimpleNamespace(names={"logits"})])

    def clone(self) -> Graph:
        return self

    def get_ordered_ops(self) -> list[Any]:
        return [
            SimpleNamespace(
                get_friendly_name=lambda name=name: name,
                get_type_name=lambda name=name: name.rpartition("/")[2],
            )
            for name in NAMES
        ]


class Packages:
    """A stand-in for OpenVINO and NNCF: the second logit loses what is quantized or in bfloat16.

    It is 1 without a loss, and the first logit is 0, or what a test sets.
    """

    ModelType = SimpleNamespace(TRANSFORMER="transformer")
    CompressWeightsMode = SimpleNamespace(INT8_ASYM="int8")

    def __init__(
        self, errors: Mapping[str, float] = ERRORS, *, bfloat16: float = 0.0, first: float = 0.0
    ) -> None:
        self._errors, self._bfloat16, self._first = errors, bfloat16, first
        self.compiled: list[tuple[frozenset[str], Any]] = []

    def Dataset(self, feeds: Any) -> Any:  # noqa: N802 - NNCF's name
        return feeds

    def IgnoredScope(self, names: list[str]) -> list[str]:  # noqa: N802 - NNCF's name
        return names

    def quantize(self, graph: Graph, *_: Any, ignored_scope: Any, **__: Any) -> Graph:
        kept = ignored_scope or []
        return Graph(frozenset(b for b in BLOCKS if not any(b in name for name in kept)))

    def compress_weights(self, graph: Graph, ignored_scope: Any, mode: str) -> Graph:
        return self.quantize(graph, ignored_scope=ignored_scope)

    def compile_model(self, graph: Graph, device: str, settings: Any) -> Any:
        self.compiled.append((graph.quantized, settings))
        loss = sum(self._errors[block] for block in graph.quantized)
        loss += self._bfloat16 * (settings.get("INFERENCE_PRECISION_HINT") == "bf16")
        return lambda _: {"logits": np.array([[self._first, 1.0 - loss, -9.0]])}


def quantized(
    packages: Packages,
    quantization: Quantization = "int8",
    *,
    min_agreement: float = 0.99,
    independent: bool = False,
    settings: Mapping[str, Mapping[str, int | str]] = AUTO,
    errors: dict[str, float] | None = None,
) -> Quantized:
    compare = partial(compare_outputs, independent=independent)
    target = AccuracyTarget(min_agreement, compare, (), settings)
    return quantize(
        Graph(),
        quantization,
        FEEDS,
        target,
        nncf=packages,
        compile_model=packages.compile_model,
        errors=errors,
    )


@pytest.mark.parametrize("quantization", ["int8", "int8_weights"])
def test_the_most_sensitive_block_stays_in_float(quantization: Quantization) -> None:
    found = quantized(Packages(), quantization)
    assert found == Quantized(
        Graph(frozenset(BLOCKS) - {SENSITIVE}, found.graph.outputs), "bfloat16"
    )


def test_a_model_of_one_block_is_quantized_as_a_whole_or_not_at_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "hf_serve.handlers.export.quantize._blocks", lambda _graph: {SENSITIVE: [SENSITIVE]}
    )
    packages, errors = Packages(), dict[str, float]()
    assert quantized(packages, errors=errors).graph.quantized == set(BLOCKS)
    assert not errors


def test_errors_of_an_earlier_call_are_not_measured_again() -> None:
    packages, errors = Packages(), dict[str, float]()
    assert SENSITIVE not in quantized(packages, errors=errors).graph.quantized
    compiled = len(packages.compiled)
    assert SENSITIVE not in quantized(packages, errors=errors).graph.quantized
    assert len(packages.compiled) == 2 * compiled - len(BLOCKS)


def test_everything_is_quantized_if_labels_agree() -> None:
    packages = Packages(dict.fromkeys(BLOCKS, 0.01))
    assert quantized(packages).graph.quantized == set(BLOCKS)
    assert [blocks for blocks, _ in packages.compiled] == [frozenset(), frozenset(BLOCKS)]


def test_everything_is_quantized_without_a_minimum_agreement() -> None:
    packages = Packages()
    found = quantized(packages, min_agreement=0)
    assert (found.graph.quantized, found.dtype) == (set(BLOCKS), "bfloat16")
    assert packages.compiled == []


def test_float32_is_chosen_if_bfloat16_changes_labels_and_8_bits_do_not() -> None:
    found = quantized(Packages(dict.fromkeys(BLOCKS, 0.1), bfloat16=0.7))
    assert (found.graph.quantized, found.dtype) == (set(BLOCKS), "float32")


def test_bfloat16_of_the_yaml_is_not_replaced() -> None:
    found = quantized(Packages(bfloat16=9.0), settings={"bfloat16": BF16})
    assert found.dtype == "bfloat16"


@pytest.mark.parametrize("independent", [True, False])
def test_each_label_counts_if_labels_are_independent(independent: bool) -> None:
    """A loss changes the second label here, but not which label has the largest score."""
    found = quantized(Packages(first=3.0), independent=independent)
    assert (SENSITIVE in found.graph.quantized) == (not independent)


def test_a_graph_is_measured_with_the_served_settings_against_float32() -> None:
    packages = Packages(dict.fromkeys(BLOCKS, 0.01))
    quantized(packages)
    assert packages.compiled == [(frozenset(), FLOAT32_SETTINGS), (frozenset(BLOCKS), BF16)]


@pytest.mark.parametrize(("changed", "sufficient"), [(2, True), (3, False)])
def test_the_agreement_has_to_be_a_standard_error_above_the_minimum(
    changed: int, sufficient: bool
) -> None:
    target = AccuracyTarget(0.99, compare_outputs, (), AUTO)
    report = FidelityReport(500, 500, 1 - changed / 500, 0.1)
    assert target.is_sufficient(report) == sufficient
