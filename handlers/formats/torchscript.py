"""`save_mode: torchscript`: a traced graph for any number of rows and tokens."""

from __future__ import annotations

from pathlib import Path

import torch

from handlers.formats import pretrained
from handlers.formats.base import Model, Wanted
from handlers.graph import GraphModel, exporting, graph_of
from handlers.graph_file import graph_file, loading, note_dtype, tell_dtype
from handlers.signature import Signature
from handlers.trials import check_equal, example_inputs, trials

FILE = "traced_model.pt"
GENERATES = False


def export(wanted: Wanted, target: Path, inputs: tuple[str, ...]) -> None:
    """Trace the checkpoint in `wanted.directory` into a folder, and compare the graph with it.

    Raises:
        WrongCheckpoint: when it cannot be traced, or the graph gives other answers.
    """
    module = pretrained.read(wanted).eval()
    batches = trials(module, inputs)
    with exporting(module):
        graph = graph_of(module, wanted, inputs)
        traced = torch.jit.trace(graph, example_inputs(graph, batches), check_trace=False)
    torch.jit.save(traced, target / FILE)
    graph.signature.write(target)
    note_dtype(target, module.dtype)
    check_equal(module, GraphModel(traced, graph.signature), batches, FILE)


def load(wanted: Wanted) -> Model:
    """Load the traced graph; one that the old example made is read as well.

    Raises:
        WrongCheckpoint: no `.pt` file, or none that torch can read.
    """
    path = graph_file(wanted.directory, FILE, "*.pt")
    tell_dtype(wanted, path.name)
    with loading(path.name):
        graph = torch.jit.load(path, map_location=wanted.device).eval()
    return GraphModel(graph, Signature.read(wanted.directory, wanted.outputs), wanted.device)
