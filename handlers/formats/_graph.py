"""A checkpoint as one function of tensors, the shape in which every exported format takes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.export import Dim
from transformers import PreTrainedModel

from handlers.batching.packing import (
    COLUMNS,
    ROWS,
    SEGMENTS,
    PackedBatch,
    first_fit_decreasing,
    pack,
)
from handlers.batching.padding import Batch, Padding
from handlers.batching.rows import Row
from handlers.checkpoints.model_spec import ModelSpec
from handlers.errors import WrongCheckpoint, summarize
from handlers.export.manifest import Signature
from handlers.formats._packable import Packable, as_packable, example_texts
from handlers.runtime.model import ForwardOnlyModel


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

    def __init__(self, packable: Packable, signature: Signature) -> None:
        super().__init__()
        self.module = packable.module
        self.packable = packable
        self.signature = signature

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the outputs in the signature's order."""
        outputs = self.packable.forward(dict(zip(self.signature.inputs, inputs, strict=True)))
        return tuple(outputs[name] for name in self.signature.outputs)


AnyGraph = Graph | PackedGraph


def graph_of(module: PreTrainedModel, spec: ModelSpec, inputs: tuple[str, ...]) -> AnyGraph:
    """Return the module as a graph for packed rows, or for padded ones where it cannot take them.

    Args:
        module: the model.
        wanted: what is asked for.
        inputs: names of the model's inputs, the attention mask among them.
    """
    packable = spec.padding and as_packable(module, spec.padding, spec.outputs, spec.per_token)
    if not packable:
        return Graph(module, Signature(inputs, spec.outputs)).eval()
    own = [name for name in inputs if name != "attention_mask"]
    starts = (ROWS, COLUMNS) if packable.pools else ()
    names = (*own, "position_ids", SEGMENTS, *starts)
    return PackedGraph(packable, Signature(names, spec.outputs)).eval()


def any_size(inputs: Sequence[torch.Tensor]) -> tuple[dict[int, Any], ...]:
    """Return the dynamic shapes of torch.export for inputs of which every axis may change."""
    return tuple(dict.fromkeys(range(tensor.ndim), Dim.DYNAMIC) for tensor in inputs)


def example_inputs(graph: AnyGraph, batches: Sequence[Batch]) -> tuple[torch.Tensor, ...]:
    """Return inputs by position with which a graph can be traced."""
    if not graph.signature.packs:
        return graph.signature.by_position(batches[0])
    names = [name for name in batches[0] if name != "attention_mask"]
    texts = example_texts(int(graph.module.config.get_text_config().vocab_size))
    rows = [Row({**{name: [0] * len(text) for name in names}, **text.features}) for text in texts]
    packed = pack(
        rows, first_fit_decreasing([len(row) for row in rows], max(map(len, rows))), Padding({})
    )
    return tuple(packed.inputs[name] for name in graph.signature.inputs)


class GraphModel(ForwardOnlyModel):
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
    def forward_packed(self, packed: PackedBatch) -> Mapping[str, torch.Tensor]:
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
            f"cannot be exported ({summarize(error)})",
            "use save_mode: pretrained",
        ) from None
