"""`save_mode: onnx`: a graph of the ONNX standard, run by ONNX Runtime in float32.

What Hugging Face's own exporters write, `model.onnx` with named inputs, loads as well.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch

from handlers.batching.packing import PackedBatch
from handlers.checkpoints.model_spec import ModelSpec
from handlers.errors import WrongCheckpoint
from handlers.export.manifest import Signature
from handlers.export.parity import check_parity, parity_batches
from handlers.formats._graph import any_size, example_inputs, exporting, graph_of
from handlers.formats._graph_file import graph_file, loading
from handlers.formats.base import BaseFormat
from handlers.formats.pretrained import read_weights
from handlers.runtime.model import ForwardOnlyModel, Model

logger = logging.getLogger(__name__)

FILE = "model.onnx"
PROVIDERS = {
    "cuda": ("CUDAExecutionProvider", "ROCMExecutionProvider", "MIGraphXExecutionProvider")
}


class Format(BaseFormat):
    """ONNX in float32."""

    dtypes = ("float32",)
    packages: ClassVar[Mapping[str, str]] = {
        "onnxruntime": "pip install onnxruntime",
        "onnxscript": "pip install onnx onnxscript onnxruntime",
    }

    def export(self, spec: ModelSpec, target: Path, inputs: tuple[str, ...]) -> None:
        self.require("onnxscript")
        module = read_weights(spec.in_float32()).eval().requires_grad_(requires_grad=False)
        batches = parity_batches(module, inputs)
        with exporting(module):
            graph = graph_of(module, spec, inputs)
            example = example_inputs(graph, batches)
            program: Any = torch.onnx.export(
                graph,
                example,
                dynamo=True,
                dynamic_shapes=(any_size(example),),
                input_names=list(graph.signature.inputs),
                output_names=list(spec.outputs),
                verbose=False,
            )
            program.save(target / FILE)
        check_parity(module, self.load(replace(spec, directory=target)), batches, FILE)

    def load(self, spec: ModelSpec) -> Model:
        runtime = self.require("onnxruntime")
        path = graph_file(spec.directory, FILE, "*.onnx")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        providers = _providers(spec.device, runtime.get_available_providers())
        with loading(path.name):
            session = runtime.InferenceSession(path, options, providers=providers)
        _check_outputs(session, spec.outputs, path.name)
        return OnnxModel(session, spec.outputs)


class OnnxModel(ForwardOnlyModel):
    """A session of ONNX Runtime."""

    def __init__(self, session: Any, outputs: tuple[str, ...]) -> None:
        self._session, self._outputs = session, outputs
        self._signature = Signature(tuple(each.name for each in session.get_inputs()), outputs)

    def forward(self, batch: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        return self._run(self._signature.by_position(batch))

    @property
    def packs(self) -> bool:
        return self._signature.packs

    def forward_packed(self, packed: PackedBatch) -> Mapping[str, torch.Tensor]:
        return self._run([packed.inputs[name] for name in self._signature.inputs])

    def _run(self, inputs: Sequence[torch.Tensor]) -> Mapping[str, torch.Tensor]:
        pairs = zip(self._signature.inputs, inputs, strict=True)
        feed = {name: tensor.numpy() for name, tensor in pairs}
        found = self._session.run(list(self._outputs), feed)
        return {
            name: torch.from_numpy(array) for name, array in zip(self._outputs, found, strict=True)
        }


def _providers(device: torch.device, available: list[str]) -> list[Any]:
    """Return ONNX Runtime's names for the device, the CPU last for what the device cannot do."""
    host = "CPUExecutionProvider"
    own = next((name for name in PROVIDERS.get(device.type, ()) if name in available), None)
    if own is None:
        logger.info("ONNX Runtime computes on the CPU; it has %s", ", ".join(available))
        return [host]
    logger.info("ONNX Runtime computes with %s on device %d", own, device.index or 0)
    return [(own, {"device_id": device.index or 0}), host]


def _check_outputs(session: Any, outputs: tuple[str, ...], file: str) -> None:
    given = [each.name for each in session.get_outputs()]
    if missing := set(outputs) - set(given):
        raise WrongCheckpoint(
            file,
            f"gives {', '.join(given)}, not {missing.pop()}",
            "export it again with this YAML's mode",
        )
