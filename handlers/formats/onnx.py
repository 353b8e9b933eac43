"""`save_mode: onnx`: an ONNX graph in float32, run by ONNX Runtime.

It also loads the files of Hugging Face's exporters, `model.onnx` with named inputs.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch

from ..checkpoints.model_spec import ModelSpec
from ..checkpoints.probe_inputs import GraphInputs
from ..errors import WrongCheckpoint
from ..export.fidelity import check_fidelity
from ..export.manifest import Signature
from ..model import Model
from .base import BaseFormat, FormatCapabilities
from .graph import (
    PositionalModel,
    build_graph,
    dynamic_shapes,
    example_inputs,
    find_graph_file,
    translate_export_errors,
    translate_load_errors,
)
from .weights import read_weights

logger = logging.getLogger(__name__)

FILE = "model.onnx"
FLOAT32 = "tensor(float)"
PROVIDERS = {
    "cuda": ("CUDAExecutionProvider", "ROCMExecutionProvider", "MIGraphXExecutionProvider")
}


class Format(BaseFormat):
    """ONNX in float32."""

    capabilities = FormatCapabilities(dtypes=("float32",))
    packages: ClassVar[Mapping[str, str]] = {
        "onnxruntime": "pip install onnxruntime",
        "onnxscript": "pip install onnx onnxscript onnxruntime",
    }

    def export(self, spec: ModelSpec, target: Path, inputs: GraphInputs) -> None:
        self.require("onnxscript")
        module = read_weights(spec.in_float32()).eval().requires_grad_(requires_grad=False)
        batches = inputs.batches(module)
        with translate_export_errors(module):
            graph = build_graph(module, spec, inputs)
            example = example_inputs(graph, batches)
            program: Any = torch.onnx.export(
                graph,
                example,
                dynamo=True,
                dynamic_shapes=(dynamic_shapes(graph, inputs, example),),
                input_names=list(graph.signature.inputs),
                output_names=list(graph.signature.outputs),
                verbose=False,
            )
            program.save(target / FILE)
        check_fidelity(module, self.load(replace(spec, directory=target)), batches, FILE)

    def load(self, spec: ModelSpec) -> Model:
        runtime = self.require("onnxruntime")
        path = find_graph_file(spec.directory, FILE, "*.onnx")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        providers = _providers(spec.device, runtime.get_available_providers())
        with translate_load_errors(path.name):
            session = runtime.InferenceSession(path, options, providers=providers)
        # Other exporters name files of quantized weights after their dtype.
        exact = path.name == FILE and {each.type for each in session.get_outputs()} == {FLOAT32}
        names = _outputs(session, spec, path.name)
        return OnnxModel(session, names, full_precision=exact)


class OnnxModel(PositionalModel):
    """An ONNX Runtime session."""

    def __init__(
        self, session: Any, outputs: tuple[str, ...], *, full_precision: bool = False
    ) -> None:
        self._session = session
        inputs = tuple(each.name for each in session.get_inputs())
        super().__init__(Signature(inputs, outputs), full_precision=full_precision)

    def _run(self, inputs: Sequence[torch.Tensor]) -> Mapping[str, torch.Tensor]:
        names, pairs = self._signature.outputs, zip(self._signature.inputs, inputs, strict=True)
        arrays = self._session.run(list(names), {name: each.numpy() for name, each in pairs})
        return {name: torch.from_numpy(array) for name, array in zip(names, arrays, strict=True)}


def _providers(device: torch.device, available: list[str]) -> list[Any]:
    """Return the execution providers for a device; the CPU runs unsupported operations."""
    cpu = "CPUExecutionProvider"
    provider = next((name for name in PROVIDERS.get(device.type, ()) if name in available), None)
    if provider is None:
        logger.info("ONNX Runtime computes on the CPU; it has %s", ", ".join(available))
        return [cpu]
    logger.info("ONNX Runtime computes with %s on device %d", provider, device.index or 0)
    return [(provider, {"device_id": device.index or 0}), cpu]


def _outputs(session: Any, spec: ModelSpec, file: str) -> tuple[str, ...]:
    """Return the outputs of a session that the task reads.

    Raises:
        WrongCheckpoint: one is missing.
    """
    names = [each.name for each in session.get_outputs()]
    if missing := set(spec.outputs.required) - set(names):
        raise WrongCheckpoint(
            file,
            f"has {', '.join(names)}, not {missing.pop()}",
            "export it again with this YAML's mode",
        )
    return tuple(name for name in spec.outputs.names if name in names)
