"""`save_mode: onnx`: a graph of the ONNX standard, run by ONNX Runtime in float32.

What Hugging Face's own exporters lay down, `model.onnx` with named inputs, loads as well.
"""

from __future__ import annotations

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

FILE = "model.onnx"
GENERATES = False
ANY_SIZE = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
PROVIDERS = {"cuda": "CUDAExecutionProvider", "cpu": "CPUExecutionProvider"}


def export(wanted: Wanted, target: Path, inputs: tuple[str, ...]) -> None:
    """Export the checkpoint in `wanted.directory` into a folder, and compare the graph with it.

    Raises:
        WrongCheckpoint: when it cannot be exported, or the graph gives other answers.
        WrongConfig: onnxscript is not installed.
    """
    needed("onnxscript", "save_mode: onnx")
    module = pretrained.read(wanted).eval().float().requires_grad_(requires_grad=False)
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


def _providers(device: torch.device, available: list[str]) -> list[str]:
    """Return ONNX Runtime's names for the device, the CPU last for what the device cannot do."""
    chosen = dict.fromkeys((PROVIDERS.get(device.type, PROVIDERS["cpu"]), PROVIDERS["cpu"]))
    return [name for name in chosen if name in available]


def _check_outputs(session: Any, outputs: tuple[str, ...], file: str) -> None:
    given = [each.name for each in session.get_outputs()]
    if missing := set(outputs) - set(given):
        raise WrongCheckpoint(
            file,
            f"gives {', '.join(given)}, not {missing.pop()}",
            "export it again with this YAML's mode",
        )
