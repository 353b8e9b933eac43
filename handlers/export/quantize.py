"""Quantization of OpenVINO models with NNCF."""

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

ModelInputs = Mapping[str, Any]
CompileModel = Callable[[Any, str, dict[str, Any]], Any]

# Shares of the layers that stay in floating point. They are tried in this order until the agreement
# on the calibration rows is sufficient.
FLOAT_SHARES = (0.0, 0.25, 0.5)
SUFFICIENT_AGREEMENT = 0.995
# Logit of padding. It is finite because infinite values never agree.
MASKED_LOGIT = np.finfo(np.float32).min
FLOAT32_SETTINGS: Mapping[str, int | str] = {"INFERENCE_PRECISION_HINT": "f32"}
LAYER = re.compile(r"\.(?:layers?|h|blocks?)\.(\d+)[./]")


@dataclass(frozen=True)
class AccuracyTarget:
    """The criterion for an int8 model, which is also applied to the finished export.

    Attributes:
        min_agreement: the minimum share of equal labels; 0 disables the check.
        independent: whether each label is a separate decision.
        settings: the settings that OpenVINO compiles the served graph with.
    """

    min_agreement: float
    independent: bool
    settings: Mapping[str, int | str]


def quantize(
    graph: Any,
    quantization: Quantization,
    batches: Sequence[ModelInputs],
    target: AccuracyTarget,
    *,
    nncf: Any,
    compile_model: CompileModel,
) -> Any:
    """Return a quantized OpenVINO graph.

    Args:
        graph: an `openvino.Model`.
        quantization: `int8` quantizes weights and activations, `int8_weights` and `int4_weights`
            compress the weights only.
        batches: representative inputs for calibration; required for `int8`.
        target: the accuracy criterion for `int8`.
        nncf: the NNCF package.
        compile_model: `openvino.compile_model`.
    """
    if quantization == "int8":
        return _int8(nncf, graph, batches, target, compile_model)
    return nncf.compress_weights(graph, **_weight_compression(nncf, quantization))


def _int8(
    nncf: Any,
    graph: Any,
    batches: Sequence[ModelInputs],
    target: AccuracyTarget,
    compile_model: CompileModel,
) -> Any:
    """Quantize all layers, or fewer if too many labels change.

    Errors of early layers propagate through all later ones, so the first layers stay in floating
    point. Without a minimum agreement, all layers are quantized.
    """
    sufficient = SUFFICIENT_AGREEMENT if target.min_agreement else 0.0
    expected = list(_outputs(compile_model(graph, "CPU", dict(FLOAT32_SETTINGS)), graph, batches))
    best_agreement, best = -1.0, graph
    for share, float_operations in _float_layers(graph):
        candidate = nncf.quantize(
            graph.clone(),
            nncf.Dataset(list(batches)),
            model_type=nncf.ModelType.TRANSFORMER,
            subset_size=len(batches),
            ignored_scope=nncf.IgnoredScope(names=float_operations) if float_operations else None,
        )
        compiled = compile_model(candidate, "CPU", dict(target.settings))
        outputs = list(_outputs(compiled, candidate, batches))
        report = compare_outputs(expected, outputs, independent=target.independent)
        agreement = report.label_agreement
        if agreement > best_agreement:
            best_agreement, best = agreement, candidate
        logger.info(
            "int8 without the first %g of the layers: %.2f%% agreement", share, 100 * agreement
        )
        if best_agreement >= sufficient:
            break
    return best


def _outputs(compiled: Any, graph: Any, batches: Sequence[ModelInputs]) -> Iterator[Outputs]:
    """Yield the outputs of a compiled graph for each batch, without those of padding."""
    for batch in batches:
        outputs = compiled(batch)
        mask = batch[SEGMENTS] >= 0 if SEGMENTS in batch else batch["attention_mask"] > 0
        names = _names(graph.outputs)
        yield {name: _without_padding(outputs[name], mask) for name in names}


def _without_padding(values: Any, mask: npt.NDArray[np.bool_]) -> Any:
    if values.shape[:2] != mask.shape:
        return values
    return np.where(mask, values, MASKED_LOGIT) if values.ndim == 2 else values[mask]


def _float_layers(graph: Any) -> list[tuple[float, list[str]]]:
    """Return each share of `FLOAT_SHARES` with the operations of the layers that stay in float.

    A graph whose operation names contain no layer indices has the first share only, which is 0.
    """
    layers = {
        name: int(match[1])
        for name in (node.get_friendly_name() for node in graph.get_ordered_ops())
        if (match := LAYER.search(name))
    }
    count = len(set(layers.values()))
    return [
        (share, [name for name, layer in layers.items() if layer < share * count])
        for share in (FLOAT_SHARES if count > 1 else FLOAT_SHARES[:1])
    ]


def _names(ports: Sequence[Any]) -> set[str]:
    return {name for each in ports for name in each.names}


def _weight_compression(nncf: Any, quantization: Quantization) -> dict[str, Any]:
    """Return the arguments of `nncf.compress_weights`."""
    if quantization == "int8_weights":
        return {"mode": nncf.CompressWeightsMode.INT8_ASYM}
    fallback = nncf.AdvancedCompressionParameters(
        group_size_fallback_mode=nncf.GroupSizeFallbackMode.ADJUST
    )
    return {
        "mode": nncf.CompressWeightsMode.INT4_ASYM,
        "group_size": 64,
        "advanced_parameters": fallback,
    }
