"""This kit, once for each YAML of a mode: its archive on a real TorchServe."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
import yaml

from benchmarks.contenders.archived import Archived
from handlers import formats
from handlers.checkpoints.dtypes import pick_dtype
from handlers.config.handler_section import HandlerSection
from handlers.config.model_config import ModelConfig
from scripts.kit.archive import Archive, pack
from scripts.kit.archive_formats import ARCHIVE_FORMATS
from scripts.kit.places import BUILD, MODEL_CONFIGS

# Packed where AWS's compiler is; compiled by torch, which pays on GPUs and starts slowly.
LEFT_OUT = ("_neuronx", "_compiled")


class Kit(Archived):
    """The repository's own YAML, with another checkpoint in it: what is tuned there is measured.

    Args:
        name: the contender's name.
        source: the YAML.
        checkpoint: the model to serve instead of the one that the YAML names.
        work: takes what is made on the way.
    """

    def __init__(self, name: str, source: Path, checkpoint: Path, work: Path) -> None:
        stem = f"bench_{source.stem}"
        self._yaml = _with_checkpoint(source, checkpoint, work / "configs" / f"{stem}.yaml")
        self.config = ModelConfig.read(self._yaml)
        self.precision = _precision(self.config.handler)
        super().__init__(name, work / "model_store" / f"{stem}.mar", work / "servers" / stem)

    def pack(self, *, checked: bool) -> Archive:
        """Make the archive anew, the exported graph too, and say what that took."""
        shutil.rmtree(BUILD / "exports" / self._yaml.stem, ignore_errors=True)
        return pack(self._yaml, export_path=self.archive.parent, force=True, checked=checked)

    def unpack(self, folder: Path) -> Path:
        """Return the folder that a worker would load, unpacked from the archive."""
        shutil.rmtree(folder, ignore_errors=True)
        return ARCHIVE_FORMATS["mar"].unpack(self.archive, folder)


def sources(mode: str) -> dict[str, Path]:
    """Return the YAML of each contender of a mode by the contender's name, the usual one first."""
    variants = sorted((MODEL_CONFIGS / "variants").glob(f"{mode}_*.yaml"))
    chosen = [path for path in variants if not path.stem.endswith(LEFT_OUT)]
    usual = MODEL_CONFIGS / f"{mode}.yaml"
    return {f"kit{path.stem.removeprefix(mode)}": path for path in (usual, *chosen)}


def _with_checkpoint(source: Path, checkpoint: Path, target: Path) -> Path:
    document = yaml.safe_load(source.read_text(encoding="utf-8"))
    document["handler"] |= {"model_name": str(checkpoint), "min_agreement": 0.0}
    document["handler"].pop("revision", None)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return target


def _precision(handler: HandlerSection) -> str:
    """Return the dtype in which a YAML has matrices multiplied on this machine."""
    if handler.quantization == "int8":
        return "int8"
    named = formats.get(handler.save_mode).computes_in(handler.dtype)
    return str(pick_dtype(named, torch.device("cpu"))).removeprefix("torch.")
