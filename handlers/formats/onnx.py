"""`save_mode: onnx`: a graph of the ONNX standard, run by ONNX Runtime in float32.

What Hugging Face's own exporters lay down, `model.onnx` with named inputs, loads as well.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.export import Dim

from handlers.errors import WrongCheckpoint
from handlers.formats import pretrained
from handlers.formats.base import ForwardOnly, Model, Wanted
from handlers.graph import Graph, Signature, check_equal, exporting, trials
from handlers.needed import needed

logger = logging.getLogger(__name__)

FILE = "model.onnx"
GENERATES = False
ANY_SIZE = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
PROVIDERS = {
    "cuda": ("CUDAExecutionProvider", "ROCMExecutionProvider", "MIGraphXExecutionProvider")
}


def export(wanted: Wanted, target: Path, inputs: tuple[str, ...]) -> None:
    """Export the checkpoint in `wanted.directory` into a folder, and compare the graph with it.

    Raises:
        WrongCheckpoint: when it cannot be exported, or the graph gives other answers.
        WrongConfig: onnxscript is not installed.
    """
    needed("onnxscript", "save_mode: onnx")
    exact = wanted.config.handler.model_copy(update={"dtype": "float32"})
    source = replace(wanted, config=wanted.config.model_copy(update={"handler": exact}))
    module = pretrained.read(source).eval().requires_grad_(requires_grad=False)
    batches = trials(module, inputs)
    with exporting(module):
        program: Any = torch.onnx.export(
            Graph(module, Signature(inputs, wanted.outputs)).eval(),
            tuple(batches[0].values()),
            dynamo=True,
            dynamic_shapes=((ANY_SIZE,) * len(inputs),),
            input_names=list(inputs),
            output_names=list(wanted.outputs),
            verbose=False,
        )
        program.save(target / FILE)
    check_equal(module, load(replace(wanted, directory=target)).forward, batches, FILE)


def load(wanted: Wanted) -> Model:
    """Load the graph into ONNX Runtime.

    Raises:
        WrongCheckpoint: no `.onnx` file, or none that ONNX Runtime can run.
        WrongConfig: onnxruntime is not installed.
    """
    runtime = needed("onnxruntime", "save_mode: onnx")
    path = next(iter(sorted(wanted.directory.glob("*.onnx"))), None)
    if path is None:
        raise WrongCheckpoint(
            FILE, "is not there", "pack it with scripts/create_archive.py, which makes it"
        )
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    providers = _providers(wanted.device, runtime.get_available_providers())
    try:
        session = runtime.InferenceSession(path, options, providers=providers)
    except Exception as error:  # noqa: BLE001 - ONNX Runtime has no public base of its errors
        reason = " ".join(str(error).split())[:200]
        raise WrongCheckpoint(
            path.name, f"cannot be loaded ({reason})", "export it again"
        ) from None
    _check_outputs(session, wanted.outputs, path.name)
    return OnnxModel(session, wanted.outputs)


class OnnxModel(ForwardOnly):
    """A session of ONNX Runtime."""

    def __init__(self, session: Any, outputs: tuple[str, ...]) -> None:
        self._session, self._outputs = session, outputs
        self._inputs = [each.name for each in session.get_inputs()]

    def forward(self, batch: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        feed = {name: batch[name].numpy() for name in self._inputs}
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
