"""What is in an archive: its model, what it is served with, and what its workers need."""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hf_serve.handlers.checkpoints.archive_signature import SIGNATURE, SUMS
from hf_serve.handlers.config.documents import parse_json, parse_yaml
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.errors import KitError, WrongConfig
from hf_serve.handlers.export.fidelity_report import FILE as QUALITY_FILE
from hf_serve.handlers.export.fidelity_report import FidelityReport
from hf_serve.hosts.archives import config_name
from hf_serve.hosts.mar_reader import Mar, WrongMar
from hf_serve.scripts.archives.manifest import MANIFEST_FILE
from hf_serve.scripts.archives.model_store import (
    SUFFIXES,
    UNREADABLE,
    name_in_tar,
    read_file,
    why_unreadable,
)
from hf_serve.scripts.archives.verification import verify_archive

WEIGHTS = (".safetensors", ".bin", ".pt", ".pt2", ".onnx", ".data")
# What a worker has in addition to its weights, in bytes.
WORKER_BYTES = 600 << 20
# `problem_type` in the config.json of a checkpoint.
MULTI_LABEL = "multi_label_classification"
KIT = "handlers/__init__.py"
# A line of the kit's handler, which needs the folder.
KIT_IMPORT = b"from handlers."
# What archives lack that torch-model-archiver was given too little for.
YAML_REMEDY = "the YAML that says its mode; name it with --config-file of torch-model-archiver"
HANDLERS_REMEDY = (
    "and no folder handlers/, which that imports; add the kit's artifacts/package to --extra-files"
    " of torch-model-archiver"
)


class WrongArchive(KitError):
    """An archive cannot be served, or was changed."""

    def __init__(self, file: str, reason: str) -> None:
        super().__init__(f"{file}: {reason}")


@dataclass(frozen=True)
class ArchiveSummary:
    """What is in an archive.

    Attributes:
        name: the name of its model in its manifest.
        kit: the version of the kit whose `handlers` it has; None if it has none.
        handler: the file with its handler.
        files: the number of its files.
        size: their bytes when they are unpacked.
        weights: the bytes of the files that a worker reads into memory.
        has_sums: whether each file has a SHA-256, which was checked except in a .tar.gz.
        is_signed: whether the sums are signed.
        model: the `config.json` of its checkpoint; empty without one.
        quality: how closely the model agrees with its checkpoint; None where it was not measured.
    """

    name: str
    version: str
    kit: str | None
    handler: str
    files: int
    size: int
    weights: int
    has_sums: bool
    is_signed: bool
    config: ModelConfig
    model: Mapping[str, Any]
    quality: FidelityReport | None

    @property
    def memory(self) -> int:
        """The bytes that its workers take, at least."""
        return self.config.minWorkers * (self.weights + WORKER_BYTES)

    @property
    def served(self) -> str:
        """Whether it is served, as far as its files say."""
        if self.kit is None:
            return f"by TorchServe alone, with its own {self.handler}, of which nothing is checked"
        return "yes" if self.has_sums else "not known, as `hf-serve pack` has not packed it"

    @property
    def labels(self) -> Sequence[str]:
        """The labels of a classifier; empty of another model."""
        found = self.model.get("id2label")
        return [str(label) for label in found.values()] if isinstance(found, dict) else []

    @property
    def has_independent_labels(self) -> bool:
        """Whether each label is scored by itself."""
        return self.model.get("problem_type") == MULTI_LABEL

    @classmethod
    def read(cls, path: Path, public_key: Path | None = None) -> ArchiveSummary:
        """Check the sums of an archive and, given a key, its signature, and read what is in it.

        Raises:
            WrongArchive: TorchServe cannot begin to load it, or it was changed.
            WrongConfig: it is not from the kit, or its YAML is wrong.
        """
        if not path.exists():
            raise KitError(f"There is no file {path}; correct the path.")
        if reason := why_unreadable(path):
            raise WrongArchive(path.name, reason)
        try:
            has_sums = verify_archive(path, public_key)
            return cls._read(path, has_sums=has_sums)
        except (WrongConfig, WrongArchive):
            raise
        except (KitError, OSError, WrongMar, KeyError, ValueError, *UNREADABLE) as error:
            raise WrongArchive(path.name, str(error)) from None

    @classmethod
    def _read(cls, path: Path, *, has_sums: bool) -> ArchiveSummary:
        sizes, read = _contents(path)
        manifest = parse_json(read(MANIFEST_FILE))["model"]
        config_file = config_name(manifest)
        if config_file not in sizes:
            raise WrongArchive(path.name, f"it has no {config_file}, {YAML_REMEDY}")
        handler = str(manifest["handler"])
        source = read(handler) if handler in sizes else b""
        if KIT not in sizes and KIT_IMPORT in source:
            raise WrongArchive(path.name, f"it has {handler}, {HANDLERS_REMEDY}")
        document = parse_yaml(read(config_file))
        quality = None
        with suppress(KeyError, OSError, ValueError, TypeError, AttributeError):
            quality = FidelityReport.from_json(parse_json(read(QUALITY_FILE)))
        model = parse_json(read("config.json")) if "config.json" in sizes else {}
        return cls(
            name=str(manifest["modelName"]),
            version=str(manifest.get("modelVersion", "1.0")),
            kit=_version_of(read(KIT).decode()) if KIT in sizes else None,
            handler=handler,
            files=len(sizes),
            size=sum(sizes.values()),
            weights=sum(size for name, size in sizes.items() if name.endswith(WEIGHTS)),
            has_sums=has_sums or SUMS in sizes,
            is_signed=SIGNATURE in sizes,
            config=ModelConfig.parse(document, f"{path.name}: {config_file}"),
            model=model if isinstance(model, dict) else {},
            quality=quality,
        )


def is_archive(path: Path) -> bool:
    """Return whether a path is an archive: a file by its name, a folder by its manifest."""
    if path.is_dir():
        return (path / MANIFEST_FILE).is_file()
    return path.name.endswith(SUFFIXES)


def _version_of(code: str) -> str:
    """Return the version in the source of the kit."""
    return code.partition('__version__ = "')[2].partition('"')[0] or "unknown"


def _contents(path: Path) -> tuple[Mapping[str, int], Callable[[str], bytes]]:
    """Return the sizes of the files of an archive, and a function that reads one."""
    if path.is_dir():
        files = [each for each in path.rglob("*") if each.is_file()]
        sizes = {each.relative_to(path).as_posix(): each.stat().st_size for each in files}
    elif path.name.endswith(".tar.gz"):
        with tarfile.open(path) as packed:
            members = [each for each in packed if each.isfile()]
        sizes = {name_in_tar(each): each.size for each in members}
    else:
        with Mar(path) as mar:
            sizes = {entry.name: entry.size for entry in mar.entries}
    return sizes, lambda name: read_file(path, name)
