"""Exported models, made once for a YAML and its checkpoint and kept under `build/exports/`."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from handlers.config import ModelConfig
from handlers.exports import export, is_exported
from scripts.kit.places import BUILD

FINGERPRINT = ".fingerprint"


def exported(name: str, config: ModelConfig, checkpoint: Path) -> dict[str, Path]:
    """Return the files of a YAML's exported model by name, exporting it if anything changed.

    Empty where the format is the checkpoint itself.

    Raises:
        ConfigError: when it cannot be exported.
    """
    if not is_exported(config):
        return {}
    folder = BUILD / "exports" / name
    fingerprint = _fingerprint(config, checkpoint)
    if not _is_current(folder, fingerprint):
        draft = folder.with_name(f".{name}.draft")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        export(checkpoint, config, draft)
        (draft / FINGERPRINT).write_text(fingerprint, encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        draft.rename(folder)
    return {path.name: path for path in folder.iterdir() if not path.name.startswith(".")}


def _is_current(folder: Path, fingerprint: str) -> bool:
    path = folder / FINGERPRINT
    return path.is_file() and path.read_text(encoding="utf-8") == fingerprint


def _fingerprint(config: ModelConfig, checkpoint: Path) -> str:
    """Return a digest of the YAML and of the names, sizes and times of the checkpoint's files."""
    digest = hashlib.sha256(config.model_dump_json().encode())
    for path in sorted(checkpoint.iterdir()):
        stat = path.stat()
        digest.update(f"{path.name} {stat.st_size} {stat.st_mtime_ns}".encode())
    return digest.hexdigest()
