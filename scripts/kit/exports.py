"""Export or measure models once per YAML file and checkpoint, cached under `build/exports/`."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from importlib.metadata import packages_distributions, version
from pathlib import Path

import torch

from handlers import formats
from handlers.checkpoints.dtypes import pick_dtype
from handlers.config.model_config import ModelConfig
from handlers.schemas.request import Request
from scripts.kit.calibration import samples
from scripts.kit.places import BUILD, ROOT, model_name

FINGERPRINT = ".fingerprint"
# Keys that TorchServe, or the worker of an exported model, reads and an export does not.
OF_SERVING = {
    "minWorkers",
    "maxWorkers",
    "maxBatchDelay",
    "responseTimeout",
    "startupTimeout",
    "deviceIds",
    "maxRetryTimeoutInSec",
    "clientTimeoutInMills",
    "jobQueueSize",
    "useJobTicket",
    "useVenv",
}
OF_WORKERS = {"predict_timeout", "explain_timeout", "max_waiting", "profile"}


def exported(
    config_path: Path, config: ModelConfig, checkpoint: Path, build: Path = BUILD
) -> dict[str, Path]:
    """Return the files of an exported model by name, exporting it again if anything changed.

    A lossy export includes `quality.json`, the comparison with the checkpoint in float32. A
    checkpoint that is not exported has that file alone. With `save_mode: auto` there is a file with
    the format that was chosen. They are kept below `build`.

    Raises:
        ConfigError: the model cannot be exported.
    """
    name, requests = model_name(config_path), samples(config_path, config)
    folder = build / "exports" / name
    fingerprint = _fingerprint(config, checkpoint, requests)
    if not _is_current(folder, fingerprint):
        draft = folder.with_name(f".{name}.draft")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        formats.export(checkpoint, config, draft, requests)
        (draft / FINGERPRINT).write_text(fingerprint, encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        draft.rename(folder)
    return {path.name: path for path in folder.iterdir() if not path.name.startswith(".")}


def _is_current(folder: Path, fingerprint: str) -> bool:
    path = folder / FINGERPRINT
    return path.is_file() and path.read_text(encoding="utf-8") == fingerprint


def _versions(save_mode: str) -> list[str]:
    """Return the versions of torch, transformers and the packages required by a format."""
    required = {"torch", "transformers", *formats.get(save_mode).packages}
    names = {name.partition(".")[0] for name in required}
    owners = packages_distributions()
    found = {owner for name in names for owner in owners.get(name, ())}
    return sorted(f"{name} {version(name)}" for name in found)


def _fingerprint(config: ModelConfig, checkpoint: Path, requests: Sequence[Request]) -> str:
    """Return a digest of everything an export depends on.

    This is the config without the keys of serving alone, the format of `save_mode: auto` on this
    machine, the samples, the code and package versions, the dtype chosen for the processor, and the
    names, sizes and modification times of the checkpoint files.
    """
    keys = config.model_dump_json(
        exclude={**dict.fromkeys(OF_SERVING, True), "handler": OF_WORKERS}
    )
    digest = hashlib.sha256(keys.encode())
    save_mode = formats.plan(config).handler.save_mode
    digest.update(repr((requests, save_mode, _versions(save_mode))).encode())
    digest.update(str(pick_dtype(config.handler.dtype, torch.device("cpu"))).encode())
    for path in sorted((ROOT / "handlers").rglob("*.py")):
        digest.update(path.read_bytes())
    for path in sorted(checkpoint.iterdir()):
        stat = path.stat()
        digest.update(f"{path.name} {stat.st_size} {stat.st_mtime_ns}".encode())
    return digest.hexdigest()
