"""Fewer bits for an OpenVINO model, by NNCF."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from handlers.batching.packing import SEGMENTS
from handlers.batching.rows import Outputs
from handlers.config.handler_section import Quantization
from handlers.export.parity_report import compare_outputs

logger = logging.getLogger(__name__)

Feed = Mapping[str, Any]
Compile = Callable[[Any, str, dict[str, Any]], Any]

# Tried in this order, until labels agree well enough on the rows of the calibration.
SHARES_KEPT = (0.0, 0.25, 0.5)
ENOUGH = 0.995
NEVER = np.finfo(np.float32).min  # Infinity is no number that models can agree on.
EXACT: Mapping[str, int | str] = {"INFERENCE_PRECISION_HINT": "f32"}
LAYER = re.compile(r"\.(?:layers?|h|blocks?)\.(\d+)[./]")


@dataclass(frozen=True)
class AccuracyTarget:
    """How the finished export will be judged, by which int8 is chosen as well.

    Attributes:
        asked: share of labels that must not change, on rows that calibration does not have; 0 for
            none.
        independent: whether each label is a decision of its own.
        settings: what OpenVINO is told when it compiles the graph to be served.
    """

    asked: float
    independent: bool
    settings: Mapping[str, int | str]


def quantize(
    graph: Any,
    how: Quantization,
    feeds: Sequence[Feed],
    target: AccuracyTarget,
    *,
    nncf: Any,
    compile_model: Compile,
) -> Any:
    """Return an OpenVINO graph in fewer bits.

    Args:
        graph: an `openvino.Model`.
        how: `int8` stores and computes in 8 bits what calibration shows to bear it; `int8_weights`
            and `int4_weights` store weights in fewer bits and compute as before.
        feeds: inputs that show what the model usually meets; `int8` needs them.
        target: how the exported model will be compared with the checkpoint.
        nncf: the NNCF package.
        compile_model: `openvino.compile_model`.
    """
    if how == "int8":
        return _int8(nncf, graph, feeds, target, compile_model)
    return nncf.compress_weights(graph, **_weight_compression(nncf, how))


def _int8(
    nncf: Any, graph: Any, feeds: Sequence[Feed], target: AccuracyTarget, compile_model: Compile
) -> Any:
    """Quantize all layers, or fewer where the model would choose other labels.

    An error that is made early grows through all that follows, so the first layers are the ones
    that stay in floating point. Where labels may change as they like, all are quantized.
    """
    enough = ENOUGH if target.asked else 0.0
    exact = list(_outputs(compile_model(graph, "CPU", dict(EXACT)), graph, feeds))
    best, chosen = -1.0, graph
    for share, kept in _kept(graph):
        made = nncf.quantize(
            graph.clone(),
            nncf.Dataset(list(feeds)),
            model_type=nncf.ModelType.TRANSFORMER,
            subset_size=len(feeds),
            ignored_scope=nncf.IgnoredScope(names=kept) if kept else None,
        )
        outputs = list(_outputs(compile_model(made, "CPU", dict(target.settings)), made, feeds))
        found = compare_outputs(exact, outputs, independent=target.independent).label_agreement
        if found > best:
            best, chosen = found, made
        logger.info("int8 but for the first %g of the layers: %.2f%% agree", share, 100 * found)
        if best >= enough:
            break
    return chosen


def _outputs(compiled: Any, graph: Any, feeds: Sequence[Feed]) -> Iterator[Outputs]:
    """Yield the outputs of a compiled graph for each batch, without those of padding."""
    for feed in feeds:
        found = compiled(feed)
        mask = feed[SEGMENTS] >= 0 if SEGMENTS in feed else feed["attention_mask"] > 0
        names = _names(graph.outputs)
        yield {name: _without_padding(found[name], mask) for name in names}


def _without_padding(values: Any, mask: npt.NDArray[np.bool_]) -> Any:
    if values.shape[:2] != mask.shape:
        return values
    return np.where(mask, values, NEVER) if values.ndim == 2 else values[mask]


def _kept(graph: Any) -> list[tuple[float, list[str]]]:
    """Return shares of the layers, and the names of the operations in the first so many.

    The first share is none; a graph without layers that can be told apart has no other.
    """
    numbers = {
        name: int(found[1])
        for name in (node.get_friendly_name() for node in graph.get_ordered_ops())
        if (found := LAYER.search(name))
    }
    count = len(set(numbers.values()))
    return [
        (share, [name for name, number in numbers.items() if number < share * count])
        for share in (SHARES_KEPT if count > 1 else SHARES_KEPT[:1])
    ]


def _names(ports: Sequence[Any]) -> set[str]:
    return {name for each in ports for name in each.names}


def _weight_compression(nncf: Any, how: Quantization) -> dict[str, Any]:
    """Return NNCF's arguments for weights in 8 or 4 bits."""
    if how == "int8_weights":
        return {"mode": nncf.CompressWeightsMode.INT8_ASYM}
    fallback = nncf.AdvancedCompressionParameters(
        group_size_fallback_mode=nncf.GroupSizeFallbackMode.ADJUST
    )
    return {
        "mode": nncf.CompressWeightsMode.INT4_ASYM,
        "group_size": 64,
        "advanced_parameters": fallback,
    }
