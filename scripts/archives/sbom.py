"""The SBOM of an archive: its model, its files and the packages it runs with, as CycloneDX JSON."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import (
    Distribution,
    PackageNotFoundError,
    distribution,
    packages_distributions,
)
from pathlib import Path
from typing import Any

import yaml
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.model.tool import ToolRepository
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hf_serve.handlers import __version__, formats
from hf_serve.handlers.checkpoints.archive_signature import SUMS, read_sums
from hf_serve.handlers.config.handler_section import CHECKPOINT
from hf_serve.handlers.config.model_config import CONFIG_FILE
from hf_serve.handlers.errors import KitError
from hf_serve.handlers.formats import CHOICE_FILE
from hf_serve.hosts.mar_reader import Mar, WrongMar
from hf_serve.scripts.archives.manifest import MANIFEST_FILE, timestamp
from hf_serve.scripts.installation import DISTRIBUTION

SUFFIX = ".cdx.json"
# The reference of the checkpoint.
MODEL = "model"
# Extras of the kit for modes and settings, whose packages workers import where they are installed.
OF_WORKERS = frozenset({"audio", "diffusion", "signatures", "tables", "tracing"})


class NoSums(KitError):
    """An archive has no sums, or cannot be read."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} has no {SUMS}; pack it again, as a .mar or as a folder.")


def write_sbom(archive: Path) -> Path:
    """Write the SBOM of an archive to the folder of the archive, and return its path.

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
    handler = yaml.safe_load(files[CONFIG_FILE])["handler"]
    document: dict[str, Any] = json.loads(JsonV1Dot6(_bom(handler, files)).output_as_string())
    # The library has no model cards.
    card = {"modelCard": {"modelParameters": {"task": handler["mode"]}}}
    components = [
        component | card if component["bom-ref"] == MODEL else component
        for component in document["components"]
    ]
    return {**document, "components": components}


def _bom(handler: Mapping[str, Any], files: Mapping[str, bytes]) -> Bom:
    archive = _archive(json.loads(files[MANIFEST_FILE])["model"])
    kit = Component(name=DISTRIBUTION, version=__version__, type=ComponentType.APPLICATION)
    packages = _packages(_requirements(_format_of(handler, files)))
    libraries = {name: _library(package.distribution) for name, package in packages.items()}
    components = [
        _checkpoint(handler),
        *(_file(path, digest) for path, digest in read_sums(files[SUMS]).items()),
        *libraries.values(),
    ]
    bom = Bom(
        serial_number=uuid.uuid5(uuid.NAMESPACE_URL, files[SUMS].decode()),
        metadata=BomMetaData(
            timestamp=timestamp(), tools=ToolRepository(components=[kit]), component=archive
        ),
        components=components,
    )
    bom.register_dependency(archive, components)
    for name, package in packages.items():
        required = [libraries[each] for each in package.requires if each in libraries]
        bom.register_dependency(libraries[name], required)
    return bom


def _archive(model: Mapping[str, str]) -> Component:
    name, version = model["modelName"], model["modelVersion"]
    return Component(name=name, version=version, type=ComponentType.APPLICATION, bom_ref="archive")


def _checkpoint(handler: Mapping[str, Any]) -> Component:
    revision = handler.get("revision")
    return Component(
        name=str(handler.get("model_name") or handler["mode"]),
        version=str(revision) if revision else None,
        type=ComponentType.MACHINE_LEARNING_MODEL,
        bom_ref=MODEL,
    )


def _file(path: str, digest: str) -> Component:
    hashes = [HashType(alg=HashAlgorithm.SHA_256, content=digest)]
    return Component(name=path, type=ComponentType.FILE, bom_ref=f"file:{path}", hashes=hashes)


def _library(found: Distribution) -> Component:
    name, version = found.metadata["Name"], found.version
    address = PackageURL("pypi", name=canonicalize_name(name), version=version)
    key = "License-Expression"
    licenses = [LicenseExpression(found.metadata[key])] if key in found.metadata else ()
    return Component(
        name=name,
        version=version,
        bom_ref=address.to_string(),
        purl=address,
        licenses=licenses,
    )


def _format_of(handler: Mapping[str, Any], files: Mapping[str, bytes]) -> str:
    """Return the format of an archive; with `save_mode: auto` it was chosen by packing."""
    chosen = json.loads(files.get(CHOICE_FILE, b"{}"))
    return str(chosen.get("save_mode") or handler.get("save_mode") or CHECKPOINT)


def _requirements(save_mode: str) -> list[Requirement]:
    """Return what a worker of an archive imports: the kit with extras, and the format's packages.

    The extras are those for the format, and for modes and settings of every format.
    """
    known = distribution(DISTRIBUTION).metadata.get_all("Provides-Extra") or []
    extras = [name for name in known if name in OF_WORKERS or name == save_mode]
    # Some are installed without the dependencies that they name, so no extra has them.
    tops = {package.partition(".")[0] for package in formats.get(save_mode).packages}
    distributions = packages_distributions()
    others = sorted({name for top in tops for name in distributions.get(top, ())})
    return [Requirement(f"{DISTRIBUTION}[{','.join(extras)}]"), *map(Requirement, others)]


@dataclass(frozen=True)
class Package:
    """An installed package, and the names of those that it requires here."""

    distribution: Distribution
    requires: set[str] = field(default_factory=set)


def _packages(required: Iterable[Requirement]) -> dict[str, Package]:
    """Return the installed packages that are required, directly or not, by name, but the kit."""
    found: dict[str, Package] = {}
    done = set[tuple[str, str]]()
    waiting = list(required)
    while waiting:
        requirement = waiting.pop()
        key = canonicalize_name(requirement.name)
        try:
            package = found.setdefault(key, Package(distribution(requirement.name)))
        except PackageNotFoundError:
            continue
        new = {(key, extra) for extra in ("", *requirement.extras)} - done
        done |= new
        needs = [
            need
            for need in map(Requirement, package.distribution.requires or [])
            for _, extra in new
            if need.marker is None or need.marker.evaluate({"extra": extra})
        ]
        package.requires.update(canonicalize_name(need.name) for need in needs)
        waiting += needs
    return {key: found[key] for key in sorted(found) if key != DISTRIBUTION}


def _read(archive: Path, name: str) -> bytes:
    try:
        if archive.is_dir():
            return (archive / name).read_bytes()
        with Mar(archive) as mar:
            return mar.read(name)
    except (KeyError, OSError, WrongMar):
        raise NoSums(archive) from None
