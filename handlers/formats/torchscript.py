"""`save_mode: torchscript`: a traced graph for any number of rows and tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from ..checkpoints.model_spec import ModelSpec
from ..checkpoints.probe_inputs import GraphInputs
from ..export.fidelity import check_fidelity
from .base import FormatCapabilities
from .graph import (
    GraphModel,
    TorchGraphFormat,
    build_graph,
    example_inputs,
    translate_export_errors,
)
from .weights import read_weights


class Format(TorchGraphFormat):
    """TorchScript; also loads graphs of TorchServe's example."""

    # TorchServe's example sets both keys in every YAML.
    capabilities = FormatCapabilities(supports_compile=True, supports_batch_size=True)
    file = "traced_model.pt"
    pattern = "*.pt"

    def export(self, spec: ModelSpec, target: Path, inputs: GraphInputs) -> None:
        module = read_weights(spec).eval()
        batches = inputs.batches(module)
        with translate_export_errors(module):
            graph = build_graph(module, spec, inputs)
            traced = torch.jit.trace(graph, example_inputs(graph, batches), check_trace=False)
            torch.jit.save(traced, target / self.file)
        self.write_manifest(target, graph.signature, module.dtype)
        check_fidelity(module, GraphModel(traced, graph.signature), batches, self.file)

    def read_graph(self, path: Path, device: torch.device) -> torch.nn.Module:
        graph: torch.nn.Module = torch.jit.load(path, map_location=device).eval()
        replace_devices(graph, device)
        return graph


def replace_devices(graph: torch.nn.Module, device: torch.device) -> None:
    """Have a traced graph create its tensors on a device, instead of that where it was traced.

    `map_location` of `torch.jit.load` moves the tensors that a graph has, and no other.
    """
    for module in graph.modules():
        for constant in _constants(module):
            if constant.output().type().kind() == "DeviceObjType":
                constant.s_("value", str(device))


def _constants(module: Any) -> list[Any]:
    try:
        found: list[Any] = module.graph.findAllNodes("prim::Constant")
    except RuntimeError:  # It has no `forward`, like a list of modules.
        return []
    return [constant for constant in found if "value" in constant.attributeNames()]
