"""A stand-in for AWS's `torch_neuronx`, with the signature that its documentation gives."""

from __future__ import annotations

from typing import Any

from tests.standins.neuron import compiled


def trace(
    func: Any,
    example_inputs: Any,
    *_: Any,
    input_output_aliases: dict[Any, Any] = {},  # noqa: B006 - as documented
    compiler_workdir: str | None = None,
    compiler_args: str | list[str] | None = None,
    partitioner_config: Any = None,
    inline_weights_to_neff: bool = True,
    cpu_backend: bool = False,
) -> Any:
    """Return a traced function that takes the example's shape alone."""
    return compiled(func, example_inputs)
