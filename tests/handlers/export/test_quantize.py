"""How two graphs are compared to choose the layers that are computed in int8."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from handlers.export.parity_report import compare_outputs
from handlers.export.quantize import FLOAT32_SETTINGS, AccuracyTarget, _without_padding, quantize

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
    return {"logits": _without_padding(values, MASK)}


@dataclass
class Graph:
    """A stand-in for OpenVINO's model of two layers, with its logits for one text."""

    logits: Sequence[float]
    outputs: Any = field(default_factory=lambda: [SimpleNamespace(names={"logits"})])

    def clone(self) -> Graph:
        return self

    def get_ordered_ops(self) -> list[Any]:
        names = ("bert.layer.0.output", "bert.layer.1.output")
        return [SimpleNamespace(get_friendly_name=lambda name=name: name) for name in names]


class Packages:
    """A stand-in for OpenVINO and NNCF that records the settings of each compiled graph."""

    ModelType = SimpleNamespace(TRANSFORMER="transformer")

    def __init__(self, *made: Graph) -> None:
        self._made = iter(made)
        self.compiled: list[tuple[Graph, Any]] = []

    def Dataset(self, feeds: Any) -> Any:  # noqa: N802 - NNCF's name
        return feeds

    def IgnoredScope(self, names: list[str]) -> list[str]:  # noqa: N802 - NNCF's name
        return names

    def quantize(self, *_: Any, **__: Any) -> Graph:
        return next(self._made)

    def compile_model(self, graph: Graph, device: str, settings: Any) -> Any:
        self.compiled.append((graph, settings))
        return lambda _: {"logits": np.array([graph.logits])}


FEEDS = [{"attention_mask": np.array([[1, 1]])}]
PLAIN = Graph([3.0, 1.0, -1.0])
LOST_ITS_SECOND_LABEL, LIKE_PLAIN = Graph([3.0, -1.0, -1.0]), Graph([2.9, 1.1, -1.0])


def quantized(found: Packages, target: AccuracyTarget) -> Any:
    return quantize(PLAIN, "int8", FEEDS, target, nncf=found, compile_model=found.compile_model)


def packages() -> Packages:
    return Packages(LOST_ITS_SECOND_LABEL, LIKE_PLAIN)


@pytest.mark.parametrize(
    ("independent", "chosen"), [(True, LIKE_PLAIN), (False, LOST_ITS_SECOND_LABEL)]
)
def test_int8_is_chosen_by_every_label_if_labels_are_independent(
    independent: bool, chosen: Graph
) -> None:
    assert quantized(packages(), AccuracyTarget(0.99, independent, {})) is chosen


def test_int8_is_measured_with_the_served_settings_against_float32() -> None:
    served: dict[str, int | str] = {"INFERENCE_NUM_THREADS": 3, "INFERENCE_PRECISION_HINT": "bf16"}
    found = packages()
    quantized(found, AccuracyTarget(0.99, independent=False, settings=served))
    assert found.compiled == [(PLAIN, FLOAT32_SETTINGS), (LOST_ITS_SECOND_LABEL, served)]
