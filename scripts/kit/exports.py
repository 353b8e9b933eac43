"""Exported models, made once for a YAML and its checkpoint and kept under `build/exports/`."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

from handlers.config import ModelConfig
from handlers.exports import export, is_exported
from handlers.requests import Request
from scripts.kit.calibration import samples
from scripts.kit.places import BUILD, model_name

FINGERPRINT = ".fingerprint"


def exported(config_path: Path, config: ModelConfig, checkpoint: Path) -> dict[str, Path]:
    """Return the files of a YAML's exported model by name, exporting it if anything changed.

    Empty where the format is the checkpoint itself. A lossy format's files have `quality.json`
    among them: how well it agrees with the checkpoint.

    Raises:
        ConfigError: when it cannot be exported.
    """
    if not is_exported(config):
        return {}
    name, requests = model_name(config_path), samples(config_path, config)
    folder = BUILD / "exports" / name
    fingerprint = _fingerprint(config, checkpoint, requests)
    if not _is_current(folder, fingerprint):
        draft = folder.with_name(f".{name}.draft")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        export(checkpoint, config, draft, requests)
        (draft / FINGERPRINT).write_text(fingerprint, encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        draft.rename(folder)
    return {path.name: path for path in folder.iterdir() if not path.name.startswith(".")}


def _is_current(folder: Path, fingerprint: str) -> bool:
    path = folder / FINGERPRINT
    return path.is_file() and path.read_text(encoding="utf-8") == fingerprint


def _fingerprint(config: ModelConfig, checkpoint: Path, requests: Sequence[Request]) -> str:
    """Return a digest of YAML and samples, and of names, sizes and times of the checkpoint."""
    digest = hashlib.sha256(config.model_dump_json().encode())
    digest.update(repr(requests).encode())
    for path in sorted(checkpoint.iterdir()):
        stat = path.stat()
        digest.update(f"{path.name} {stat.st_size} {stat.st_mtime_ns}".encode())
    return digest.hexdigest()
