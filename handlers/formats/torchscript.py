"""`save_mode: torchscript`: a traced graph for any number of rows and tokens."""

from __future__ import annotations

from pathlib import Path

import torch

from handlers.checkpoints.model_spec import ModelSpec
from handlers.export.manifest import Signature
from handlers.export.parity import check_parity, parity_batches
from handlers.formats import pretrained
from handlers.formats._graph import GraphModel, example_inputs, exporting, graph_of
from handlers.formats._graph_file import graph_file, loading, warn_about_dtype, write_dtype
from handlers.runtime.model import Model

FILE = "traced_model.pt"
GENERATES = False


def export(spec: ModelSpec, target: Path, inputs: tuple[str, ...]) -> None:
    """Trace the checkpoint in `wanted.directory` into a folder, and compare the graph with it.

    Raises:
        WrongCheckpoint: when it cannot be traced, or the graph gives other answers.
    """
    module = pretrained.read(spec).eval()
    batches = parity_batches(module, inputs)
    with exporting(module):
        graph = graph_of(module, spec, inputs)
        traced = torch.jit.trace(graph, example_inputs(graph, batches), check_trace=False)
    torch.jit.save(traced, target / FILE)
    graph.signature.write(target)
    write_dtype(target, module.dtype)
    check_parity(module, GraphModel(traced, graph.signature), batches, FILE)


def load(spec: ModelSpec) -> Model:
    """Load the traced graph; one that the old example made is read as well.

    Raises:
        WrongCheckpoint: no `.pt` file, or none that torch can read.
    """
    path = graph_file(spec.directory, FILE, "*.pt")
    warn_about_dtype(spec, path.name)
    with loading(path.name):
        graph = torch.jit.load(path, map_location=spec.device).eval()
    return GraphModel(graph, Signature.read(spec.directory, spec.outputs), spec.device)
