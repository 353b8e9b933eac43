"""`save_mode: torchscript`: a traced graph for any number of rows and tokens."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch

from handlers.errors import WrongCheckpoint
from handlers.formats import pretrained
from handlers.formats.base import ForwardOnly, Model, Wanted
from handlers.graph import Graph, Signature, check_equal, exporting, trials

FILE = "traced_model.pt"
GENERATES = False


def export(wanted: Wanted, target: Path, inputs: tuple[str, ...]) -> None:
    """Trace the checkpoint in `wanted.directory` into a folder, and compare the graph with it.

    Raises:
        WrongCheckpoint: when it cannot be traced, or the graph gives other answers.
    """
    module = pretrained.read(wanted).eval()
    signature = Signature(inputs, wanted.outputs)
    batches = trials(module, inputs)
    with exporting(module):
        graph = torch.jit.trace(
            Graph(module, signature), tuple(batches[0].values()), check_trace=False
        )
    torch.jit.save(graph, target / FILE)
    signature.write(target)
    check_equal(module, TracedModel(graph, signature).forward, batches, FILE)


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
