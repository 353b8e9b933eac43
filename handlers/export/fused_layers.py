"""Splits linear layers of an OpenVINO graph that a model computes as one.

ModernBERT computes query, key and value by one layer, and both parts of a gated layer by another,
and splits the results. In int8, OpenVINO then computes scales, activations and splits in
passes over memory, and a layer for each part needs none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

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
