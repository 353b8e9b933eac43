"""`save_mode: torchscript`: a traced graph for any number of rows and tokens."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from handlers.errors import WrongCheckpoint
from handlers.formats import pretrained
from handlers.formats.base import ForwardOnly, Model, Wanted
from handlers.graph import Graph, Signature, check_equal, example

FILE = "traced_model.pt"
GENERATES = False
SHAPES = ((2, 16), (3, 29), (1, 7))


def export(wanted: Wanted, target: Path, inputs: tuple[str, ...]) -> None:
    """Trace the checkpoint in `wanted.directory` into a folder, and compare the graph with it.

    Raises:
        WrongCheckpoint: when it cannot be traced, or the graph gives other answers.
    """
    module = pretrained.read(wanted)
    signature = Signature(inputs, wanted.outputs)
    vocabulary = int(module.config.get_text_config().vocab_size)
    batches = [example(inputs, vocabulary, *shape) for shape in SHAPES]
    try:
        with torch.no_grad():
            graph = torch.jit.trace(
                Graph(module.eval(), signature), tuple(batches[0].values()), check_trace=False
            )
    except (RuntimeError, IndexError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise WrongCheckpoint(
            type(module).__name__, f"cannot be traced ({reason})", "use save_mode: pretrained"
        ) from None
    torch.jit.save(graph, target / FILE)
    signature.write(target)
    traced = TracedModel(graph, signature)
    with torch.no_grad():
        for batch in batches:
            check_equal(module(**batch), traced.forward(batch), FILE)


def load(wanted: Wanted) -> Model:
    """Load the traced graph; one that the old example made is read as well.

    Raises:
        WrongCheckpoint: no `.pt` file, or none that torch can read.
    """
    path = next(iter(sorted(wanted.directory.glob("*.pt"))), None)
    if path is None:
        raise WrongCheckpoint(
            FILE, "is not there", "pack it with scripts/create_archive.py, which makes it"
        )
    try:
        graph = torch.jit.load(path, map_location=wanted.device)
    except (RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise WrongCheckpoint(
            path.name, f"cannot be loaded ({reason})", "export it again"
        ) from None
    return TracedModel(
        graph.eval(), Signature.read(wanted.directory, wanted.outputs), wanted.device
    )


class TracedModel(ForwardOnly):
    """A TorchScript graph."""

    def __init__(
        self, graph: torch.nn.Module, signature: Signature, device: torch.device | None = None
    ) -> None:
        self._graph, self._signature = graph, signature
        self._device = device or torch.device("cpu")

    @torch.inference_mode()
    def forward(self, batch: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        outputs = self._graph(*(batch[name].to(self._device) for name in self._signature.inputs))
        found = list(outputs.values()) if isinstance(outputs, dict) else list(outputs)
        return dict(zip(self._signature.outputs, found, strict=False))
