"""Quantization of OpenVINO models with NNCF.

Blocks that change the outputs most stay in floating point where labels would change otherwise.

Linear layers that a model computes as one are split. ModernBERT computes query, key and value by
one layer, and both parts of a gated layer by another, and splits the results. In int8, OpenVINO
then computes scales, activations and splits in passes over memory, and a layer for each part needs
none.
"""

from __future__ import annotations

import logging
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from ..batching.rows import Outputs
from ..batching.sequence_packing import SEGMENTS
from ..config.handler_section import Quantization
from .fidelity_report import FidelityReport

logger = logging.getLogger(__name__)

ModelInputs = Mapping[str, Any]
CompileSettings = Mapping[str, int | str]
CompileModel = Callable[[Any, str, dict[str, Any]], Any]
Compare = Callable[[Iterable[Outputs], Iterable[Outputs]], FidelityReport]
QuantizeExcept = Callable[[Sequence[str], Sequence[ModelInputs]], Any]

# Shares of the blocks that stay in floating point. They are tried in this order until the agreement
# on the calibration rows is sufficient.
FLOAT_SHARES = (0.0, 0.125, 0.25, 0.5, 0.75)
# Batches for the activation ranges of a candidate, and of a block whose sensitivity is measured.
RANGE_BATCHES = 16
SENSITIVITY_BATCHES = 4
NAMED_BLOCKS = 3
# Logit of padding. It is finite because infinite values never agree.
MASKED_LOGIT = np.finfo(np.float32).min
FLOAT32_SETTINGS: CompileSettings = {"INFERENCE_PRECISION_HINT": "f32"}
LAYER = re.compile(r"(.*?\.(?:layers?|h|blocks?)\.\d+)(?:\.(.*))?$")
WRAPPER = re.compile(r"^__module\.(?:module\.|model\.)?")
# Types of the operations that have weights.
WEIGHTED = frozenset({"MatMul", "Gather", "Convolution"})


@dataclass(frozen=True)
class AccuracyTarget:
    """The criterion for a quantized model, which is also applied to the finished export.

    Attributes:
        compare: compares the outputs of the float32 model with the outputs of another model.
        per_token: names of the outputs that have a value for each token.
        settings: OpenVINO's settings for each dtype that the served graph may compute in, the
            preferred dtype first.
    """

    min_agreement: float
    compare: Compare
    per_token: Sequence[str]
    settings: Mapping[str, CompileSettings]

    @property
    def dtype(self) -> str:
        """The preferred dtype."""
        return next(iter(self.settings))

    def is_sufficient(self, report: FidelityReport) -> bool:
        """Return whether the agreement is one standard error above the minimum.

        The finished export has to reach the minimum on other rows.
        """
        minimum = self.min_agreement
        decisions = report.decisions
        error = math.sqrt(minimum * (1 - minimum) / decisions) if decisions else 0.0
        return report.agreement >= min(1.0, minimum + error)


@dataclass(frozen=True)
class Quantized:
    """A quantized graph and the dtype of what stays in floating point."""

    graph: Any
    dtype: str


def quantize(
    graph: Any,
    quantization: Quantization,
    batches: Sequence[ModelInputs],
    target: AccuracyTarget,
    *,
    nncf: Any,
    compile_model: CompileModel,
    errors: dict[str, float] | None = None,
) -> Quantized:
    """Return a quantized OpenVINO graph.

    Everything is quantized, or less if too many labels change: each share of `FLOAT_SHARES` of the
    most sensitive blocks stays in floating point, and each of them is tried in every dtype, until
    the agreement on the batches is sufficient. If none is, the best one is returned. Without
    batches or a minimum agreement, everything is quantized.

    Args:
        quantization: `int8` quantizes weights and activations, `int8_weights` and `int4_weights`
            compress the weights only.
        batches: representative inputs; required for `int8`.
        errors: the error of each block from an earlier call for the same model; an empty one is
            filled.
    """

    rotary = rotary_attention(graph) if quantization == "int8" else []

    def quantize_except(names: Sequence[str], part: Sequence[ModelInputs]) -> Any:
        kept = [*names, *rotary]
        ignored = nncf.IgnoredScope(names=kept) if kept else None
        if quantization == "int8":
            return _int8(nncf, graph.clone(), part, ignored)
        options = _weight_compression(nncf, quantization)
        return nncf.compress_weights(graph.clone(), ignored_scope=ignored, **options)

    if not (batches and target.min_agreement):
        return Quantized(quantize_except((), batches[:RANGE_BATCHES]), target.dtype)
    search = _Search(graph, batches, target, quantize_except, compile_model)
    return search.run({} if errors is None else errors)


class _Search:
    """The search for the largest part of a graph that can be quantized."""

    def __init__(
        self,
        graph: Any,
        batches: Sequence[ModelInputs],
        target: AccuracyTarget,
        quantize_except: QuantizeExcept,
        compile_model: CompileModel,
    ) -> None:
        self._graph, self._batches, self._target = graph, batches, target
        self._quantize_except, self._compile_model = quantize_except, compile_model
        self._expected = self._run(graph, FLOAT32_SETTINGS, batches)

    def run(self, errors: dict[str, float]) -> Quantized:
        """Return the first candidate with a sufficient agreement, or else the best one."""
        best_agreement, best = -1.0, Quantized(self._graph, self._target.dtype)
        for share, names in self._float_parts(errors):
            graph = self._quantize_except(names, self._batches[:RANGE_BATCHES])
            for dtype, settings in self._target.settings.items():
                report = self._compare(graph, settings)
                logger.info(
                    "%g of the blocks in %s: %.2f%% agreement",
                    share,
                    dtype,
                    100 * report.agreement,
                )
                if report.agreement > best_agreement:
                    best_agreement, best = report.agreement, Quantized(graph, dtype)
                if self._target.is_sufficient(report):
                    return best
        return best

    def _float_parts(self, errors: dict[str, float]) -> Iterator[tuple[float, list[str]]]:
        """Yield each share with the operations that stay in floating point."""
        yield FLOAT_SHARES[0], []
        blocks = _blocks(self._graph)
        if len(blocks) < 2:
            return
        if not errors:
            errors.update({block: self._error(blocks, block) for block in blocks})
        ranked = sorted(blocks, key=errors.__getitem__, reverse=True)
        logger.info("most sensitive blocks: %s", ", ".join(ranked[:NAMED_BLOCKS]))
        for share in FLOAT_SHARES[1:]:
            kept = ranked[: math.ceil(share * len(ranked))]
            yield share, [name for block in kept for name in blocks[block]]

    def _error(self, blocks: Mapping[str, Sequence[str]], block: str) -> float:
        """Return the mean squared error of the outputs if only one block is quantized."""
        others = [name for other, names in blocks.items() if other != block for name in names]
        graph = self._quantize_except(others, self._batches[:SENSITIVITY_BATCHES])
        found = self._run(graph, FLOAT32_SETTINGS, self._batches[:RANGE_BATCHES])
        pairs = zip(self._expected, found, strict=False)
        return float(
            np.mean(
                [_squared_error(mine[name], other[name]) for mine, other in pairs for name in mine]
            )
        )

    def _compare(self, graph: Any, settings: CompileSettings) -> FidelityReport:
        found = self._run(graph, settings, self._batches)
        return self._target.compare(self._expected, found)

    def _run(
        self, graph: Any, settings: CompileSettings, batches: Sequence[ModelInputs]
    ) -> list[Outputs]:
        compiled = self._compile_model(graph, "CPU", dict(settings))
        return list(_outputs(compiled, graph, batches, self._target.per_token))


def _squared_error(expected: Any, found: Any) -> float:
    error = np.mean(np.square(expected - found, dtype=np.float64))
    return float(error) if np.isfinite(error) else math.inf


def _int8(nncf: Any, graph: Any, batches: Sequence[ModelInputs], ignored: Any) -> Any:
    return nncf.quantize(
        graph,
        nncf.Dataset(list(batches)),
        model_type=nncf.ModelType.TRANSFORMER,
        subset_size=len(batches),
        ignored_scope=ignored,
    )


def rotary_attention(graph: Any) -> list[str]:
    """Return the names of the attentions whose queries were rotated to their positions.

    OpenVINO computes these in floating point, so that values of 8 bits are converted for nothing:
    without them, ModernBERT is 1.4 times as fast, and more exact.
    """
    return [
        node.get_friendly_name()
        for node in graph.get_ordered_ops()
        if node.get_type_name() == "ScaledDotProductAttention"
        and _is_rotated(node.input_value(0).get_node())
    ]


def _is_rotated(query: Any) -> bool:
    """Return whether a value is `query * cos + rotated_query * sin`."""
    parts = [value.get_node().get_type_name() for value in query.input_values()]
    return query.get_type_name() == "Add" and parts == ["Multiply", "Multiply"]


def _outputs(
    compiled: Any, graph: Any, batches: Sequence[ModelInputs], per_token: Sequence[str]
) -> Iterator[Outputs]:
    """Yield the outputs of a compiled graph for each batch, without padding."""
    for batch in batches:
        outputs = compiled(batch)
        yield {
            name: _mask_padding(outputs[name], _mask(batch)) if name in per_token else outputs[name]
            for name in _names(graph.outputs)
        }


def _mask(batch: ModelInputs) -> npt.NDArray[np.bool_]:
    """Return the slots of a batch that hold tokens."""
    return np.asarray(batch[SEGMENTS] >= 0 if SEGMENTS in batch else batch["attention_mask"] > 0)


def _mask_padding(values: Any, mask: npt.NDArray[np.bool_]) -> Any:
    if values.shape[:2] != mask.shape:
        return values
    return np.where(mask, values, MASKED_LOGIT) if values.ndim == 2 else values[mask]


def _blocks(graph: Any) -> dict[str, list[str]]:
    """Return the names of the operations of each block that has weights.

    A block is the attention or the rest of a layer, or a module outside of the layers, such as the
    embeddings or the head.
    """
    blocks, weighted = defaultdict[str, list[str]](list), set[str]()
    for operation in graph.get_ordered_ops():
        name, kind = operation.get_friendly_name(), operation.get_type_name()
        block = _block_of(name)
        if block and kind != "Constant":
            blocks[block].append(name)
        if block and kind in WEIGHTED:
            weighted.add(block)
    return {block: names for block, names in blocks.items() if block in weighted}


def _block_of(name: str) -> str | None:
    """Return the block of an operation; None for one that is outside of the model's modules.

    It is `bert.layer.0 attention` for `bert.layer.0.attention.self/aten::linear/MatMul`.
    """
    module, separator, _ = WRAPPER.sub("", name).partition("/")
    if not separator:
        return None
    if match := LAYER.match(module):
        return f"{match[1]} {'attention' if 'att' in (match[2] or '') else 'rest'}"
    return module.rpartition(".")[0] or module


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


Weights = npt.NDArray[np.float32]


def split_fused_layers(graph: Any) -> int:
    """Replace each layer whose output is split by one layer for each part.

    Returns:
        The number of layers that were replaced.
    """
    constants = {
        node.get_friendly_name(): node
        for node in graph.get_ops()
        if node.get_type_name() == "Constant"
    }
    count = 0
    for split in graph.get_ordered_ops():
        kind = split.get_type_name()
        if kind == "VariadicSplit":
            count += _split_halves(split, constants)
        elif kind == "Split":
            count += _split_heads(split, constants)
    graph.validate_nodes_and_infer_types()
    return count


def _split_halves(split: Any, constants: Mapping[str, Any]) -> bool:
    """Replace a layer whose output is split along its features."""
    layer = split.input_value(0).get_node()
    weights = _weights(layer, constants)
    sizes = [_static_size(part, -1) or 0 for part in split.outputs()]
    if weights is None or not all(sizes) or sum(sizes) != len(weights):
        return False
    borders = list(accumulate(sizes[:-1]))
    for part, new in zip(split.outputs(), _layers(layer, np.split(weights, borders)), strict=True):
        part.replace(new.output(0))
    return True


def _split_heads(split: Any, constants: Mapping[str, Any]) -> bool:
    """Replace a layer whose output is reshaped to (rows, width, parts, heads, size) and split."""
    from openvino import opset13  # noqa: PLC0415 - an optional package

    reshape = split.input_value(0).get_node()
    if reshape.get_type_name() != "Reshape" or len(reshape.output(0).get_partial_shape()) != 5:
        return False
    layer = reshape.input_value(0).get_node()
    weights, parts = _weights(layer, constants), split.outputs()
    heads, size = (_static_size(parts[0], axis) for axis in (3, 4))
    keeps_rows = _begins_alike(reshape, constants)
    is_split = all(_static_size(part, 2) == 1 for part in parts)
    if weights is None or not (keeps_rows and is_split and heads and size):
        return False
    if len(parts) * heads * size != len(weights):
        return False
    # Zeros stand for the sizes of the input.
    shape = opset13.constant(np.array([0, 0, 1, heads, size], np.int64))
    for part, new in zip(parts, _layers(layer, np.split(weights, len(parts))), strict=True):
        part.replace(opset13.reshape(new, shape, special_zero=True).output(0))
    return True


def _begins_alike(reshape: Any, constants: Mapping[str, Any]) -> bool:
    """Return whether a reshape keeps the rows and the width of its input, which zeros stand for."""
    shape = reshape.input_value(1).get_node()
    constant = constants.get(shape.get_friendly_name())
    return constant is not None and constant.data[:2].tolist() == [0, 0]


def _layers(layer: Any, parts: Sequence[Weights]) -> Iterator[Any]:
    """Yield a layer for each part of the weights, with the input and the name of the whole one."""
    from openvino import opset13  # noqa: PLC0415 - an optional package

    for number, weights in enumerate(parts):
        constant = opset13.constant(np.ascontiguousarray(weights))
        new = opset13.matmul(layer.input_value(0), constant, False, True)
        new.set_friendly_name(f"{layer.get_friendly_name()}_{number}")
        yield new


def _weights(layer: Any, constants: Mapping[str, Any]) -> Weights | None:
    """Return the weights of a linear layer without bias; None for any other operation."""
    if layer.get_type_name() != "MatMul" or len(layer.output(0).get_partial_shape()) != 3:
        return None
    attributes = layer.get_attributes()
    if attributes["transpose_a"] or not attributes["transpose_b"]:
        return None
    constant = constants.get(layer.input_value(1).get_node().get_friendly_name())
    is_read_once = len(layer.output(0).get_target_inputs()) == 1
    if constant is None or not is_read_once or constant.data.ndim != 2:
        return None
    weights: Weights = constant.data
    return weights


def _static_size(value: Any, axis: int) -> int | None:
    """Return the size of an axis; None where it depends on the input."""
    dimension = value.get_partial_shape()[axis]
    return int(dimension.get_length()) if dimension.is_static else None
