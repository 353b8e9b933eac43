"""`save_mode: torch_export`: a graph of torch.export, for any number of rows and tokens.

The graph is run as it is; AOTInductor, which compiles it for one processor, is not used.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch.export.passes import move_to_device_pass

from handlers.checkpoints.model_spec import ModelSpec
from handlers.export.manifest import Signature
from handlers.export.parity import check_parity, parity_batches
from handlers.formats import pretrained
from handlers.formats._graph import GraphModel, any_size, example_inputs, exporting, graph_of
from handlers.formats._graph_file import graph_file, loading, warn_about_dtype, write_dtype
from handlers.runtime.model import Model

FILE = "model.pt2"
GENERATES = False


def export(spec: ModelSpec, target: Path, inputs: tuple[str, ...]) -> None:
    """Export the checkpoint in `wanted.directory` into a folder, and compare the graph with it.

    Raises:
        WrongCheckpoint: when it cannot be exported, or the graph gives other answers.
    """
    module = pretrained.read(spec).eval().requires_grad_(requires_grad=False)
    batches = parity_batches(module, inputs)
    with exporting(module):
        graph = graph_of(module, spec, inputs)
        given = example_inputs(graph, batches)
        program = torch.export.export(graph, given, dynamic_shapes=(any_size(given),))
    torch.export.save(program, target / FILE)
    graph.signature.write(target)
    write_dtype(target, module.dtype)
    check_parity(module, GraphModel(program.module(), graph.signature), batches, FILE)


def load(spec: ModelSpec) -> Model:
    """Load the exported graph.

    Raises:
        WrongCheckpoint: no `.pt2` file, or none that torch can read.
    """
    path = graph_file(spec.directory, FILE, "*.pt2")
    warn_about_dtype(spec, path.name)
    with loading(path.name):
        graph = move_to_device_pass(torch.export.load(path), spec.device).module()
    return GraphModel(graph, Signature.read(spec.directory, spec.outputs), spec.device)
