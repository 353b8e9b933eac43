"""A stand-in for the compilers of AWS Neuron, which need AWS's machines.

It does not compile: it traces with torch and, like a compiled graph, takes only the shape that it
was traced with. A row without a token, which a device may answer with not-a-number, is refused.
`tests/standins/torch_neuronx.py` and `torch_neuron.py` have the signatures of the real packages.
"""

from __future__ import annotations

from typing import Any

import torch


def compiled(func: Any, example_inputs: Any) -> Any:
    """Return a function of tensors as a ScriptModule that can be saved, for one shape."""
    inputs = (example_inputs,) if isinstance(example_inputs, torch.Tensor) else example_inputs
    with torch.no_grad():
        return torch.jit.trace(_OneShape(func, inputs).eval(), inputs, check_trace=False)


class _OneShape(torch.nn.Module):
    def __init__(self, func: Any, inputs: tuple[torch.Tensor, ...]) -> None:
        super().__init__()
        self.func = func
        self.shapes = [list(tensor.shape) for tensor in inputs]
        self.masks = [_is_mask(tensor) for tensor in inputs]

    def forward(self, *inputs: torch.Tensor) -> Any:
        rules = zip(inputs, self.shapes, self.masks, strict=True)
        return self.func(*(_checked(tensor, shape, mask) for tensor, shape, mask in rules))


def _is_mask(tensor: torch.Tensor) -> bool:
    return int(tensor.max()) == 1 and int(tensor.min()) >= 0 and bool(tensor.any(1).all())


@torch.jit.script
def _checked(tensor: torch.Tensor, shape: list[int], mask: bool) -> torch.Tensor:
    if list(tensor.shape) != shape:
        raise RuntimeError(f"compiled for the shape {shape}, not {tensor.shape}")
    if mask and not bool(tensor.any(1).all()):
        raise RuntimeError("a row has no token")
    return tensor
