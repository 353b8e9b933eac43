"""`save_mode: openvino`: optimum-intel's OVModel classes, for CPUs above all.

`dtype` sets the precision in which OpenVINO computes (`auto`: what it thinks best for the
processor), `quantization` whether weights, or weights and activations, are stored in fewer bits.
What `optimum-cli export openvino` lays down loads as well.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import GenerationConfig

from handlers.errors import WrongCheckpoint
from handlers.formats.base import Model, Wanted
from handlers.needed import needed
from handlers.quantizing import quantize

FILE = "openvino_model.xml"
GENERATES = True
OFFLINE = {"local_files_only": True, "trust_remote_code": False}
PRECISIONS = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}


def export(wanted: Wanted, target: Path, inputs: tuple[str, ...]) -> None:
    """Convert the checkpoint in `wanted.directory` into a folder, quantized as the YAML says.

    Raises:
        WrongCheckpoint: optimum-intel cannot convert this architecture.
        WrongConfig: optimum-intel is not installed.
    """
    kind = _class(wanted)
    try:
        model = kind.from_pretrained(
            str(wanted.directory), export=True, compile=False, load_in_8bit=False, **OFFLINE
        )
    except Exception as error:  # noqa: BLE001 - converters raise errors of their own
        raise WrongCheckpoint(
            FILE, f"cannot be made ({_short(error)})", "use save_mode: pretrained"
        ) from None
    logging.getLogger("nncf").setLevel(logging.ERROR)
    quantize(model, wanted.config.handler.quantization, wanted.calibration)
    with TemporaryDirectory(dir=target) as scratch:
        model.save_pretrained(scratch)
        for path in Path(scratch).glob("openvino_*"):
            path.replace(target / path.name)
    for path in wanted.directory.glob("*config.json"):
        if not (target / path.name).exists():
            shutil.copyfile(path, target / path.name)


def load(wanted: Wanted) -> Model:
    """Load and compile the graph.

    Raises:
        WrongCheckpoint: no `openvino_model.xml`, or none that OpenVINO can run.
        WrongConfig: optimum-intel is not installed.
    """
    kind = _class(wanted)
    if not (wanted.directory / FILE).is_file():
        raise WrongCheckpoint(
            FILE, "is not there", "pack it with scripts/create_archive.py, which makes it"
        )
    settings: dict[str, int | str] = {"INFERENCE_NUM_THREADS": torch.get_num_threads()}
    if precision := PRECISIONS.get(wanted.config.handler.dtype):
        settings["INFERENCE_PRECISION_HINT"] = precision
    try:
        model = kind.from_pretrained(
            str(wanted.directory), export=False, ov_config=settings, **OFFLINE
        )
    except Exception as error:  # noqa: BLE001 - a broken file raises whatever its reader does
        raise WrongCheckpoint(
            FILE, f"cannot be loaded ({_short(error)})", "export it again"
        ) from None
    return OpenVinoModel(model, wanted.outputs)


class OpenVinoModel(Model):
    """A compiled OpenVINO graph."""

    def __init__(self, model: Any, outputs: tuple[str, ...]) -> None:
        self._model, self._outputs = model, outputs
        self._inputs = {name for each in model.model.inputs for name in each.names}

    def forward(self, batch: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        known = {name: tensor for name, tensor in batch.items() if name in self._inputs}
        found = self._model(**known)
        return {name: found[name] for name in self._outputs}

    def generate(
        self, batch: Mapping[str, torch.Tensor], config: GenerationConfig, **extra: Any
    ) -> torch.Tensor:
        ids = self._model.generate(**batch, generation_config=config, **extra)
        return torch.as_tensor(ids)


def _class(wanted: Wanted) -> Any:
    intel = needed("optimum.intel", "save_mode: openvino")
    for name in ("optimum.intel.openvino.modeling_base", "nncf", "openvino"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return getattr(intel, f"OV{wanted.auto_class.removeprefix('Auto')}")


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
