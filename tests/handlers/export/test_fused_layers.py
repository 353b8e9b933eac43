from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

openvino = pytest.importorskip("openvino")
from openvino import opset13 as ops  # noqa: E402

from hf_serve.handlers.export.quantize import rotary_attention, split_fused_layers  # noqa: E402

SIZE, HEADS = 8, 2
DRAWN = np.random.default_rng(0)


def layer(values: Any, outputs: int) -> Any:
    weights = DRAWN.normal(size=(outputs, SIZE)).astype(np.float32)
    return ops.matmul(values, ops.constant(weights), False, True)


def gated(values: Any) -> Any:
    """A gated layer, whose parts have different sizes."""
    halves = ops.variadic_split(layer(values, 3 * SIZE), ops.constant(-1), ops.constant([8, 16]))
    return ops.concat([ops.gelu(halves.output(0), "erf"), halves.output(1)], -1)


def attention(values: Any) -> Any:
    """A layer of queries, keys and values, of which each is scaled differently."""
    shape = ops.constant(np.array([0, 0, 3, HEADS, SIZE // HEADS], np.int64))
    heads = ops.split(ops.reshape(layer(values, 3 * SIZE), shape, True), ops.constant(2), 3)
    query, key, value = heads.outputs()
    return ops.concat([ops.multiply(query, ops.constant(np.float32(2))), key, value], 2)


def run(graph: Any, values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    settings = {"INFERENCE_PRECISION_HINT": "f32"}
    found: npt.NDArray[np.float32] = openvino.compile_model(graph, "CPU", settings)([values])[0]
    return found


@pytest.mark.parametrize("after", [gated, attention])
def test_a_layer_of_several_parts_becomes_a_layer_for_each(after: Any) -> None:
    values = ops.parameter([-1, -1, SIZE], np.float32)
    graph = openvino.Model([after(values)], [values])
    batch = DRAWN.normal(size=(2, 5, SIZE)).astype(np.float32)
    expected = run(graph, batch)
    assert split_fused_layers(graph) == 1
    np.testing.assert_allclose(run(graph, batch), expected, atol=1e-6)
    kinds = [node.get_type_name() for node in graph.get_ops()]
    assert not {"Split", "VariadicSplit"} & set(kinds)


def test_a_split_of_something_else_stays() -> None:
    values = ops.parameter([-1, -1, SIZE], np.float32)
    halves = ops.variadic_split(values, ops.constant(-1), ops.constant([4, 4]))
    graph = openvino.Model([ops.multiply(halves.output(0), halves.output(1))], [values])
    assert split_fused_layers(graph) == 0


@pytest.mark.parametrize("is_rotated", [True, False])
def test_attention_of_rotated_queries_stays_in_floating_point(*, is_rotated: bool) -> None:
    values = ops.parameter([1, HEADS, -1, SIZE], np.float32)
    query = ops.multiply(values, ops.constant(np.float32(0.5)))
    if is_rotated:
        query = ops.add(query, ops.multiply(values, ops.constant(np.float32(0.2))))
    attention = ops.scaled_dot_product_attention(query, values, values)
    attention.set_friendly_name("attention")
    graph = openvino.Model([attention], [values])
    assert rotary_attention(graph) == (["attention"] if is_rotated else [])
