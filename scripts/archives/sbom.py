"""The SBOM of an archive: its model, its files and the packages it runs with, as CycloneDX JSON."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import (
    Distribution,
    PackageNotFoundError,
    distribution,
    packages_distributions,
)
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from handlers import __version__, formats
from handlers.config.handler_section import CHECKPOINT
from handlers.config.model_config import CONFIG_FILE
from handlers.errors import KitError
from handlers.formats import CHOICE_FILE
from handlers.runtime.integrity import SUMS, read_sums
from hosts.mar import Mar, WrongMar
from scripts.archives.manifest import MANIFEST_FILE, timestamp

SPECIFICATION = "1.6"
KIT = "transformers-on-torchserve"
SUFFIX = ".cdx.json"
# Extras of the kit for modes and settings, whose packages workers import where they are installed.
OF_WORKERS = frozenset({"audio", "diffusion", "signatures", "tables", "tracing"})


class NoSums(KitError):
    """An archive has no sums, or cannot be read."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} has no {SUMS}; pack it again, as a .mar or as a folder.")


def write_sbom(archive: Path) -> Path:
    """Write the SBOM of an archive beside it, and return its path.

    Raises:
        NoSums: the archive has no sums.
    """
    files = {name: _read(archive, name) for name in (SUMS, MANIFEST_FILE, CONFIG_FILE)}
    if CHOICE_FILE in read_sums(files[SUMS]):
        files[CHOICE_FILE] = _read(archive, CHOICE_FILE)
    path = archive.with_name(f"{archive.name.removesuffix('.mar')}{SUFFIX}")
    path.write_text(json.dumps(sbom(files), indent=2) + "\n", encoding="utf-8")
    return path


def sbom(files: Mapping[str, bytes]) -> dict[str, Any]:
    """Return the SBOM of an archive, given its sums, manifest, YAML and choice of a format.

    It is the same for the same archive and environment.
    """
    model = json.loads(files[MANIFEST_FILE])["model"]
    handler = yaml.safe_load(files[CONFIG_FILE])["handler"]
    number = uuid.uuid5(uuid.NAMESPACE_URL, files[SUMS].decode())
    return {
        "$schema": f"http://cyclonedx.org/schema/bom-{SPECIFICATION}.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": SPECIFICATION,
        "serialNumber": f"urn:uuid:{number}",
        "version": 1,
        "metadata": {
            "timestamp": timestamp().isoformat(),
            "tools": {"components": [{"type": "application", "name": KIT, "version": __version__}]},
            "component": {
                "type": "application",
                "bom-ref": "archive",
                "name": model["modelName"],
                "version": model["modelVersion"],
            },
        },
        "components": [
            _model(handler),
            *(_file(path, digest) for path, digest in read_sums(files[SUMS]).items()),
            *(_package(found) for found in _packages(_requirements(_format_of(handler, files)))),
        ],
    }


def _model(handler: Mapping[str, Any]) -> dict[str, Any]:
    """Return the component of the checkpoint."""
    revision = {"version": str(handler["revision"])} if handler.get("revision") else {}
    name = str(handler.get("model_name") or handler["mode"])
    task = {"modelCard": {"modelParameters": {"task": handler["mode"]}}}
    kind = {"type": "machine-learning-model", "bom-ref": "model", "name": name}
    return {**kind, **revision, **task}


def _file(path: str, digest: str) -> dict[str, Any]:
    hashes = [{"alg": "SHA-256", "content": digest}]
    return {"type": "file", "bom-ref": f"file:{path}", "name": path, "hashes": hashes}


def _package(found: Distribution) -> dict[str, Any]:
    name, version = found.metadata["Name"], found.version
    address = f"pkg:pypi/{canonicalize_name(name)}@{version.replace('+', '%2B')}"
    component = {"type": "library", "bom-ref": address, "name": name, "version": version}
    key = "License-Expression"
    licenses = {"licenses": [{"expression": found.metadata[key]}]} if key in found.metadata else {}
    return {**component, "purl": address, **licenses}


def _format_of(handler: Mapping[str, Any], files: Mapping[str, bytes]) -> str:
    """Return the format of an archive; that of `save_mode: auto` was chosen when it was packed."""
    chosen = json.loads(files.get(CHOICE_FILE, b"{}"))
    return str(chosen.get("save_mode") or handler.get("save_mode") or CHECKPOINT)


def _requirements(save_mode: str) -> list[Requirement]:
    """Return what a worker of an archive imports: the kit with extras, and the format's packages.

    The extras are those for the format, and for modes and settings of every format.
    """
    known = distribution(KIT).metadata.get_all("Provides-Extra") or []
    extras = [name for name in known if name in OF_WORKERS or name == save_mode]
    # Some are installed without the dependencies that they name, so no extra has them.
    tops = {package.partition(".")[0] for package in formats.get(save_mode).packages}
    owners = packages_distributions()
    others = sorted({owner for top in tops for owner in owners.get(top, ())})
    return [Requirement(f"{KIT}[{','.join(extras)}]"), *map(Requirement, others)]


def _packages(required: Iterable[Requirement]) -> Iterator[Distribution]:
    """Yield the installed packages that are required, directly or not, by name, but the kit."""
    found: dict[str, Distribution] = {}
    done = set[tuple[str, str]]()
    waiting = list(required)
    while waiting:
        requirement = waiting.pop()
        key = canonicalize_name(requirement.name)
        try:
            found.setdefault(key, distribution(requirement.name))
        except PackageNotFoundError:
            continue
        new = {(key, extra) for extra in ("", *requirement.extras)} - done
        done |= new
        needs = list(map(Requirement, found[key].requires or [])) if new else []
        waiting += [
            need
            for _, extra in new
            for need in needs
            if need.marker is None or need.marker.evaluate({"extra": extra})
        ]
    yield from (found[key] for key in sorted(found) if key != KIT)


def _read(archive: Path, name: str) -> bytes:
    try:
        if archive.is_dir():
            return (archive / name).read_bytes()
        with Mar(archive) as mar:
            return mar.read(name)
    except (KeyError, OSError, WrongMar):
        raise NoSums(archive) from None
