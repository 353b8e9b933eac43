"""This kit on TorchServe, one contender per YAML file of a mode."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import yaml

from benchmarks.contenders.torchserve import TorchServeContender
from hf_serve.handlers import formats
from hf_serve.handlers.checkpoints.dtypes import pick_dtype
from hf_serve.handlers.config.handler_section import HandlerSection
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.scripts.archives.archive_formats import ARCHIVE_FORMATS
from hf_serve.scripts.archives.packing import Archive, pack
from hf_serve.scripts.paths import BUILD, MODEL_CONFIGS

# These require the AWS compiler, and a GPU to be useful.
EXCLUDED = ("_neuronx", "_compiled")


class Kit(TorchServeContender):
    """A YAML file of the repository with another checkpoint, to measure its settings.

    Args:
        name: the contender's name.
        source: the YAML file.
        checkpoint: the model that replaces the one in the YAML file.
        work: folder for generated files.
        handler: more values of the YAML's `handler:` section.
    """

    def __init__(
        self, name: str, source: Path, checkpoint: Path, work: Path, **handler: Any
    ) -> None:
        stem = f"bench_{source.stem}"
        self._yaml = _with_checkpoint(
            source, checkpoint, work / "configs" / f"{stem}.yaml", handler
        )
        self.config = formats.plan(ModelConfig.read(self._yaml))
        self.precision = _precision(self.config.handler)
        super().__init__(name, work / "model_store" / f"{stem}.mar", work / "servers" / stem)

    def pack(self, *, checked: bool) -> Archive:
        """Pack the archive, including a new export, and return it with its size and duration."""
        shutil.rmtree(BUILD / "exports" / self._yaml.stem, ignore_errors=True)
        return pack(self._yaml, export_path=self.archive.parent, force=True, checked=checked)

    def unpack(self, folder: Path) -> Path:
        """Unpack the archive and return the folder that a worker would load."""
        shutil.rmtree(folder, ignore_errors=True)
        return ARCHIVE_FORMATS["mar"].unpack(self.archive, folder)


def sources(mode: str) -> dict[str, Path]:
    """Return the YAML files of a mode by contender name, the default one first."""
    variants = sorted((MODEL_CONFIGS / "variants").glob(f"{mode}_*.yaml"))
    chosen = [path for path in variants if not path.stem.endswith(EXCLUDED)]
    default = MODEL_CONFIGS / f"{mode}.yaml"
    return {f"kit{path.stem.removeprefix(mode)}": path for path in (default, *chosen)}


def _with_checkpoint(
    source: Path, checkpoint: Path, target: Path, handler: Mapping[str, Any]
) -> Path:
    document = yaml.safe_load(source.read_text(encoding="utf-8"))
    document["handler"] |= {"model_name": str(checkpoint), "min_agreement": 0.0, **handler}
    document["handler"].pop("revision", None)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return target


def _precision(handler: HandlerSection) -> str:
    """Return the dtype of matrix products with this config on this machine."""
    if handler.quantization == "int8":
        return "int8"
    named = formats.get(handler.save_mode).computes_in(handler.dtype)
    return str(pick_dtype(named, torch.device("cpu"))).removeprefix("torch.")
