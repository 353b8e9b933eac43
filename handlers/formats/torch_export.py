"""`save_mode: torch_export`: a torch.export graph for any number of rows and tokens.

The graph is not compiled with AOTInductor, which would bind it to one processor type.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch.export.passes import move_to_device_pass

from ..checkpoints.model_spec import ModelSpec
from ..checkpoints.probe_inputs import GraphInputs
from ..compat.torch import export_for_any_rows
from ..export.fidelity import check_fidelity
from .graph import (
    GraphModel,
    TorchGraphFormat,
    build_graph,
    dynamic_shapes,
    example_inputs,
    translate_export_errors,
)
from .weights import read_weights


class Format(TorchGraphFormat):
    """The `.pt2` file of torch.export."""

    file = "model.pt2"
    pattern = "*.pt2"

    def export(self, spec: ModelSpec, target: Path, inputs: GraphInputs) -> None:
        module = read_weights(spec).eval().requires_grad_(requires_grad=False)
        batches = inputs.batches(module)
        with translate_export_errors(module):
            graph = build_graph(module, spec, inputs)
            example = example_inputs(graph, batches)
            shapes = dynamic_shapes(graph, inputs, example)
            program = export_for_any_rows(graph, example, shapes)
        torch.export.save(program, target / self.file)
        self.write_manifest(target, graph.signature, module.dtype)
        check_fidelity(module, GraphModel(program.module(), graph.signature), batches, self.file)

    def read_graph(self, path: Path, device: torch.device) -> torch.nn.Module:
        return move_to_device_pass(torch.export.load(path), device).module()
