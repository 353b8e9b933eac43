"""`save_mode: torch_export`: a graph of torch.export, for any number of rows and tokens.

The graph is run as it is; AOTInductor, which compiles it for one processor, is not used.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch.export.passes import move_to_device_pass

from handlers.formats import pretrained
from handlers.formats.base import Model, Wanted
from handlers.graph import GraphModel, any_size, exporting, graph_of
from handlers.graph_file import graph_file, loading, note_dtype, tell_dtype
from handlers.signature import Signature
from handlers.trials import check_equal, example_inputs, trials

FILE = "model.pt2"
GENERATES = False


def export(wanted: Wanted, target: Path, inputs: tuple[str, ...]) -> None:
    """Export the checkpoint in `wanted.directory` into a folder, and compare the graph with it.

    Raises:
        WrongCheckpoint: when it cannot be exported, or the graph gives other answers.
    """
    module = pretrained.read(wanted).eval().requires_grad_(requires_grad=False)
    batches = trials(module, inputs)
    with exporting(module):
        graph = graph_of(module, wanted, inputs)
        given = example_inputs(graph, batches)
        program = torch.export.export(graph, given, dynamic_shapes=(any_size(given),))
    torch.export.save(program, target / FILE)
    graph.signature.write(target)
    note_dtype(target, module.dtype)
    check_equal(module, GraphModel(program.module(), graph.signature), batches, FILE)


def load(wanted: Wanted) -> Model:
    """Load the exported graph.

    Raises:
        WrongCheckpoint: no `.pt2` file, or none that torch can read.
    """
    path = graph_file(wanted.directory, FILE, "*.pt2")
    tell_dtype(wanted, path.name)
    with loading(path.name):
        graph = move_to_device_pass(torch.export.load(path), wanted.device).module()
    return GraphModel(graph, Signature.read(wanted.directory, wanted.outputs), wanted.device)
