"""`save_mode: torch_export`: a graph of torch.export, for any number of rows and tokens.

The graph is run as it is; AOTInductor, which compiles it for one processor, is not used.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch.export import Dim
from torch.export.passes import move_to_device_pass

from handlers.errors import WrongCheckpoint
from handlers.formats import pretrained
from handlers.formats.base import ForwardOnly, Model, Wanted
from handlers.graph import Graph, Signature, check_equal, exporting, trials

FILE = "model.pt2"
GENERATES = False
ANY_SIZE = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}


def export(wanted: Wanted, target: Path, inputs: tuple[str, ...]) -> None:
    """Export the checkpoint in `wanted.directory` into a folder, and compare the graph with it.

    Raises:
        WrongCheckpoint: when it cannot be exported, or the graph gives other answers.
    """
    module = pretrained.read(wanted).eval().requires_grad_(requires_grad=False)
    signature = Signature(inputs, wanted.outputs)
    batches = trials(module, inputs)
    with exporting(module):
        program = torch.export.export(
            Graph(module, signature).eval(),
            tuple(batches[0].values()),
            dynamic_shapes=((ANY_SIZE,) * len(inputs),),
        )
    torch.export.save(program, target / FILE)
    signature.write(target)
    check_equal(module, ExportedModel(program.module(), signature).forward, batches, FILE)


def load(wanted: Wanted) -> Model:
    """Load the exported graph.

    Raises:
        WrongCheckpoint: no `.pt2` file, or none that torch can read.
    """
    path = next(iter(sorted(wanted.directory.glob("*.pt2"))), None)
    if path is None:
        raise WrongCheckpoint(
            FILE, "is not there", "pack it with scripts/create_archive.py, which makes it"
        )
    try:
        graph = move_to_device_pass(torch.export.load(path), wanted.device).module()
    except Exception as error:  # noqa: BLE001 - a broken file raises whatever its reader does
        reason = " ".join(str(error).split())[:200]
        raise WrongCheckpoint(
            path.name, f"cannot be loaded ({reason})", "export it again"
        ) from None
    signature = Signature.read(wanted.directory, wanted.outputs)
    return ExportedModel(graph, signature, wanted.device)


class ExportedModel(ForwardOnly):
    """A torch.export graph."""

    def __init__(
        self, graph: torch.nn.Module, signature: Signature, device: torch.device | None = None
    ) -> None:
        self._graph, self._signature = graph, signature
        self._device = device or torch.device("cpu")

    @torch.inference_mode()
    def forward(self, batch: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        inputs = (batch[name].to(self._device) for name in self._signature.inputs)
        return dict(zip(self._signature.outputs, self._graph(*inputs), strict=True))
