"""Archives as folders: unpacked once on each machine, and imported from.

This module imports nothing of `handlers`: the process that serves an archive imports the package
that is in the archive.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib
import json
import os
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from runpy import run_path
from typing import Any

import hf_serve
from hf_serve.hosts.mar_reader import CHUNK, Mar, WrongMar, is_mar

MANIFEST = Path("MAR-INF") / "MANIFEST.json"
FOLDER_VARIABLE = "UNPACKED_ARCHIVES"
SUFFIXES = (".mar", ".tar.gz")
# What Python raises of a .tar.gz that was cut off or changed, or that has one name for two files.
DAMAGED = (
    tarfile.TarError,
    gzip.BadGzipFile,
    EOFError,
    zlib.error,
    FileExistsError,
    IsADirectoryError,
    NotADirectoryError,
)
# The YAML of an archive whose manifest names none.
CONFIG_FILE = "model-config.yaml"
HOW_TO_PACK = "pack one with `hf-serve pack` (scripts/create_archive.py)"
HANDLERS = ("handlers.", "hf_serve.handlers.")
IMPORTS = Path(__file__).resolve().parents[1] / "handlers" / "compat" / "imports.py"


class ArchiveError(Exception):
    """An archive cannot be read or unpacked."""


@dataclass(frozen=True)
class Archive:
    """An archive as a folder.

    Attributes:
        sha256: the digest of the archive's file, or of the manifest of a folder.
    """

    folder: Path
    name: str
    version: str
    sha256: str


def open_archive(path: Path, expected: str | None = None) -> Archive:
    """Unpack a .mar, a .tar.gz or nothing (a folder), and read its manifest.

    The files are in a folder that is named after the archive's digest, so an archive is unpacked
    once on a machine. `UNPACKED_ARCHIVES` names the folder of these folders.

    Args:
        expected: the digest that it must have; None for any.

    Raises:
        ArchiveError: it is no archive, has another digest, or the folder belongs to another user.
    """
    digest = sha256(path / MANIFEST if path.is_dir() else path)
    if digest != (expected or digest):
        raise ArchiveError(f"{path} has changed since this command read it; run the command again.")
    folder = path if path.is_dir() else _unpack_once(path, _cache() / digest)
    model = _manifest(folder, path)
    return Archive(folder, model["modelName"], str(model.get("modelVersion", "1.0")), digest)


def config_file(folder: Path) -> Path:
    """Return the YAML of an unpacked archive, which its manifest names.

    Raises:
        ArchiveError: it has none.
    """
    name = folder.name
    path = folder / CONFIG_FILE
    if (folder / MANIFEST).is_file():
        model = _manifest(folder, folder)
        name, path = model["modelName"], folder / config_name(model)
    if not path.is_file():
        raise ArchiveError(
            f"{name} has no {path.name}, the YAML that says its mode; {HOW_TO_PACK}, or name the"
            " YAML with --config-file of torch-model-archiver."
        )
    return path


def config_name(model: Mapping[str, Any]) -> str:
    """Return the name of the YAML of an archive, given the model in its manifest.

    Raises:
        ArchiveError: it is no text.
    """
    name = model.get("configFile") or CONFIG_FILE
    if not isinstance(name, str):
        raise ArchiveError(f"the manifest's configFile is {name!r}, which is no file name.")
    return Path(name).name


def require_same_code(archives: Sequence[Archive]) -> None:
    """Check that archives have the same `handlers` package, of which a process imports one.

    Raises:
        ArchiveError: they do not.
    """
    first = archives[0]
    for other in (each for each in archives if each.folder != first.folder):
        if code_sums(other.folder / "handlers") != code_sums(first.folder / "handlers"):
            raise ArchiveError(
                f"{other.name} and {first.name} were packed with different versions of the kit;"
                " pack them again, or serve each in a process of its own."
            )


def code_sums(folder: Path) -> dict[str, str]:
    """Return the sum of each Python file in a folder, by its path.

    Raises:
        ArchiveError: one cannot be read.
    """
    files = sorted(folder.rglob("*.py"))
    return {str(file.relative_to(folder)): sha256(file) for file in files}


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits.

    Raises:
        ArchiveError: it cannot be read.
    """
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ArchiveError(f"{path} cannot be read: {error.strerror}.") from None


def import_from(folder: Path) -> None:
    """Make this process import `hf_serve.handlers` from an unpacked archive, which has `handlers`.

    Call it before the first import of a module that imports `hf_serve.handlers`. Modules of another
    `handlers` package, which an earlier task of a reused process can have imported, are dropped.

    Raises:
        ArchiveError: it has no `handlers`.
    """
    if not (folder / "handlers" / "__init__.py").is_file():
        raise ArchiveError(
            f"{_manifest(folder, folder)['modelName']} has no folder handlers/ of this kit, and"
            f" TorchServe alone runs other handlers; {HOW_TO_PACK}, or add the kit's"
            " artifacts/package to --extra-files of torch-model-archiver."
        )
    sys.path.insert(0, str(folder))
    for name in [each for each in sys.modules if f"{each}.".startswith(HANDLERS)]:
        del sys.modules[name]
    vars(hf_serve).pop("handlers", None)
    sys.meta_path[:] = [each for each in sys.meta_path if type(each).__name__ != "OtherName"]
    importlib.invalidate_caches()
    if not hasattr(importlib.import_module("handlers"), "add_name"):  # version 0.2.0
        run_path(str(IMPORTS))["add_name"]("handlers", "hf_serve.handlers")


def _cache() -> Path:
    """Return the folder of unpacked archives; code is imported from it, so it must be one's own.

    Raises:
        ArchiveError: it belongs to another user, or others may write to it.
    """
    default = Path(tempfile.gettempdir()) / f"unpacked-archives-{os.getuid()}"
    folder = Path(os.environ.get(FOLDER_VARIABLE) or default)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise ArchiveError(
            f"{folder} belongs to another user, or others may write to it, and code is imported"
            f" from it; set {FOLDER_VARIABLE} to a folder of your own."
        )
    return folder


def _unpack_once(path: Path, target: Path) -> Path:
    if target.is_dir():
        return target
    with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=target.parent) as scratch:
        draft = Path(scratch) / "archive"
        if _unpack(path, draft) != target.name:
            raise ArchiveError(f"{path} changed while it was read; unpack it again.")
        inside = draft if (draft / MANIFEST).is_file() else _only_folder(draft)
        try:
            inside.rename(target)
        except OSError:  # Another process was first.
            if not target.is_dir():
                raise
    return target


def _unpack(path: Path, folder: Path) -> str:
    """Unpack an archive, and return its digest; no entry is written outside of the folder.

    Raises:
        ArchiveError: it is neither a .mar nor a tar file, or it is damaged.
    """
    try:
        if not is_mar(path) and tarfile.is_tarfile(path):
            _unpack_tar(path, folder)
            # Of the file that was unpacked, not of one that was exchanged before.
            return sha256(path)
    except DAMAGED as error:
        raise ArchiveError(
            f"{path} is damaged, or has files that lead elsewhere ({error}); copy it again, or pack"
            " it again."
        ) from None
    try:
        with Mar(path) as mar:
            mar.unpack(folder)
            return mar.sha256
    except WrongMar as error:
        raise ArchiveError(f"{path.parent / str(error)}; {HOW_TO_PACK}.") from None


def _unpack_tar(path: Path, folder: Path) -> None:
    with tarfile.open(path) as archive:
        archive.extractall(folder, filter="data")
        # The checksum of a .gz is after its last byte, which no entry needs.
        while archive.fileobj is not None and archive.fileobj.read(CHUNK):
            pass


def _only_folder(folder: Path) -> Path:
    """Return the folder in which a .tar.gz has its files."""
    inside = [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
    return inside[0] if len(inside) == 1 else folder


def _manifest(folder: Path, path: Path) -> Any:
    """Return what the manifest of an unpacked archive says of its model."""
    with suppress(OSError, ValueError, LookupError, TypeError, RecursionError):
        model = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["model"]
        if model["modelName"]:
            return model
    raise ArchiveError(f"{path} has no {MANIFEST}, so it is no archive of a model.")
