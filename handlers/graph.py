"""A checkpoint as one function of tensors, the shape in which every exported format takes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.export import Dim
from transformers import PreTrainedModel

from handlers.errors import WrongCheckpoint, short
from handlers.formats.base import ForwardOnly, Wanted
from handlers.packable import Packable, packable
from handlers.packing import COLUMNS, ROWS, SEGMENTS, Packed
from handlers.signature import Signature


class Graph(torch.nn.Module):
    """A model that takes its inputs by position and gives a tuple.

    It makes the four-dimensional mask itself, (rows, 1, width, width): what transformers does to
    make it cannot be traced.
    """

    def __init__(self, module: PreTrainedModel, signature: Signature) -> None:
        super().__init__()
        self.module = module
        self.signature = signature

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the outputs in the signature's order."""
        batch = dict(zip(self.signature.inputs, inputs, strict=True))
        mask = batch["attention_mask"]
        rows, width = mask.shape
        batch["attention_mask"] = mask[:, None, None, :].bool().expand(rows, 1, width, width)
        outputs = self.module(**batch)
        return tuple(outputs[name] for name in self.signature.outputs)


class PackedGraph(torch.nn.Module):
    """A model that takes packed rows, its inputs by position, and gives a tuple."""

    def __init__(self, way: Packable, signature: Signature) -> None:
        super().__init__()
        self.module = way.module
        self.way = way
        self.signature = signature

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the outputs in the signature's order."""
        outputs = self.way.forward(dict(zip(self.signature.inputs, inputs, strict=True)))
        return tuple(outputs[name] for name in self.signature.outputs)


AnyGraph = Graph | PackedGraph


def graph_of(module: PreTrainedModel, wanted: Wanted, inputs: tuple[str, ...]) -> AnyGraph:
    """Return the module as a graph for packed rows, or for padded ones where it cannot take them.

    Args:
        module: the model.
        wanted: what is asked for.
        inputs: names of the model's inputs, the attention mask among them.
    """
    way = wanted.padding and packable(module, wanted.padding, wanted.outputs, wanted.per_token)
    if not way:
        return Graph(module, Signature(inputs, wanted.outputs)).eval()
    own = [name for name in inputs if name != "attention_mask"]
    starts = (ROWS, COLUMNS) if way.pools else ()
    names = (*own, "position_ids", SEGMENTS, *starts)
    return PackedGraph(way, Signature(names, wanted.outputs)).eval()


def any_size(inputs: Sequence[torch.Tensor]) -> tuple[dict[int, Any], ...]:
    """Return the dynamic shapes of torch.export for inputs of which every axis may change."""
    return tuple(dict.fromkeys(range(tensor.ndim), Dim.DYNAMIC) for tensor in inputs)


class GraphModel(ForwardOnly):
    """A graph that takes its inputs by position, as :class:`Graph` does.

    Those of the old example give a dict, or a tuple that may be longer than the signature.
    """

    def __init__(
        self, graph: torch.nn.Module, signature: Signature, device: torch.device | None = None
    ) -> None:
        self._graph, self._signature = graph, signature
        self._device = device or torch.device("cpu")

    @torch.inference_mode()
    def forward(self, batch: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        return self._call(self._signature.by_position(batch))

    @property
    def packs(self) -> bool:
        return self._signature.packs

    @torch.inference_mode()
    def forward_packed(self, packed: Packed) -> Mapping[str, torch.Tensor]:
        return self._call(tuple(packed.inputs[name] for name in self._signature.inputs))

    def _call(self, inputs: Sequence[torch.Tensor]) -> Mapping[str, torch.Tensor]:
        outputs = self._graph(*(tensor.to(self._device) for tensor in inputs))
        found = list(outputs.values()) if isinstance(outputs, dict) else list(outputs)
        return dict(zip(self._signature.outputs, found, strict=False))


@contextmanager
def exporting(module: PreTrainedModel) -> Iterator[None]:
    """Say in one sentence that a model cannot be exported, whatever the exporter raises.

    Raises:
        WrongCheckpoint: the block failed.
    """
    try:
        with torch.no_grad():
            yield
    except Exception as error:  # noqa: BLE001 - each exporter raises errors of its own
        raise WrongCheckpoint(
            type(module).__name__,
            f"cannot be exported ({short(error)})",
            "use save_mode: pretrained",
        ) from None
