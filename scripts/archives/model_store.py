"""The archives of a model store, and their versions: `NAME@VERSION.mar`."""

from __future__ import annotations

import json
import re
import tarfile
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import yaml

from hf_serve.handlers.config.documents import parse_json, parse_yaml, read_json
from hf_serve.handlers.errors import KitError, summarize
from hf_serve.hosts.archives import config_name
from hf_serve.scripts.installation import command_line

MANIFEST = Path("MAR-INF") / "MANIFEST.json"
SUFFIXES = (".mar", ".tar.gz")
UNREADABLE = (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, NotImplementedError)


class ArchiveNotFound(KitError):
    """The model store is empty or lacks a requested model."""

    def __init__(self, store: Path, missing: list[str]) -> None:
        self.store, self.missing = store, missing
        problem = f"has no archive of {', '.join(missing)}" if missing else "has no archives"
        super().__init__(f"{store} {problem}; pack them with `{command_line('pack')}`.")


def why_unreadable(path: Path) -> str | None:
    """Return why TorchServe cannot begin to load an archive; None if nothing is known against it.

    TorchServe itself ends where the manifest or the YAML of an archive is not what it expects.
    """
    try:
        model = parse_json(read_file(path, MANIFEST.as_posix()))["model"]
        if not (model["modelName"] and model["handler"]):
            return f"its {MANIFEST} names no model and handler"
        config = model.get("configFile")
        found = parse_yaml(read_file(path, config)) if config else {}
    except KeyError as error:
        return f"it has no {str(error.args[0])[:80]!r}"
    except (OSError, ValueError, TypeError, AttributeError) as error:
        return f"it cannot be read ({summarize(error)})"
    except (*UNREADABLE, yaml.YAMLError) as error:
        return f"it cannot be read ({summarize(error)})"
    return None if isinstance(found, dict) else f"its {config} is no mapping"


def name_of_archive(path: Path) -> str:
    """Return the name of the model of an archive, which is its own without the suffix."""
    suffix = next((each for each in SUFFIXES if path.name.endswith(each)), "")
    return path.name.removesuffix(suffix)


def read_file(path: Path, name: str) -> bytes:
    """Return a file of an archive, of which nothing is checked."""
    if path.is_dir():
        return (path / name).read_bytes()
    if path.name.endswith(".tar.gz"):
        with tarfile.open(path) as packed:
            # Of several files of one name, the last one is what is unpacked.
            place = {name_in_tar(each): each for each in packed}.get(name)
            content = packed.extractfile(place) if place else None
            if content is None:
                raise KeyError(name)
            return content.read()
    with zipfile.ZipFile(path) as packed_zip:
        return packed_zip.read(name)


def read_config(path: Path) -> bytes:
    """Return the YAML of an archive, which its manifest names.

    Raises:
        KeyError: it has none.
    """
    return read_file(path, config_name(parse_json(read_file(path, MANIFEST.as_posix()))["model"]))


def name_in_tar(member: tarfile.TarInfo) -> str:
    """Return the name of a file of a .tar.gz in the folder with the name of the model."""
    return member.name.removeprefix("./").partition("/")[2]


def list_archives(store: Path, names: Collection[str] = ()) -> dict[str, str]:
    """Return archive file names by model name, which is the file name without its suffix.

    If a model is packed in several formats, a .mar takes precedence over a .tar.gz, and that over
    a folder. Of the versions of a model, `NAME@VERSION.mar`, the default is listed: the one that a
    rollout has set, otherwise the newest. A file without a version has the one of its manifest, and
    is the oldest.

    Raises:
        ArchiveNotFound: the store is empty, or lacks one of `names`.
    """
    found = {path.parents[1].name: path.parents[1].name for path in store.glob(f"[!.]*/{MANIFEST}")}
    for suffix in reversed(SUFFIXES):
        files = sorted(store.glob(f"[!.]*{suffix}"))
        found |= {path.name.removesuffix(suffix): path.name for path in files}
    found = _default_versions(store, found)
    missing = [name for name in names if name not in found]
    if missing or not found:
        raise ArchiveNotFound(store, missing)
    return {name: found[name] for name in names or sorted(found)}


def _default_versions(store: Path, found: Mapping[str, str]) -> dict[str, str]:
    """Return the file of the default version of each model, given files by name and version."""
    defaults = read_defaults(store)
    versions = defaultdict[str, list[str]](list)
    for stem in found:
        name, version = split(stem)
        versions[name] += [version] if version else []
    return {
        name: found[_default(store, name, known, found, defaults.get(name))]
        for name, known in versions.items()
    }


def _default(
    store: Path, name: str, versions: list[str], found: Mapping[str, str], chosen: str | None
) -> str:
    """Return the name of the archive of the default version, without its suffix."""
    if not versions:
        return name
    if chosen in versions:
        return versioned(name, str(chosen))
    if chosen and name in found and packed_version(store / found[name]) == chosen:
        return name
    return versioned(name, newest(versions))


def packed_version(path: Path) -> str | None:
    """Return the version in the manifest of an archive; None where it cannot be read."""
    with suppress(OSError, LookupError, ValueError, TypeError, *UNREADABLE):
        return str(parse_json(read_file(path, MANIFEST.as_posix()))["model"]["modelVersion"])
    return None


SEPARATOR = "@"
DEFAULTS = "default_versions.json"
# TorchServe reads these only.
VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class WrongVersion(KitError):
    """A version that cannot be a part of a file name."""

    def __init__(self, version: str) -> None:
        super().__init__(
            f"The version {version!r} cannot be a part of a file name; use letters, digits, '_',"
            " '-' and '.'."
        )


def versioned(name: str, version: str) -> str:
    """Return the name of the archive of a version, without its suffix.

    Raises:
        WrongVersion: it cannot be one.
    """
    if not VERSION.fullmatch(version):
        raise WrongVersion(version)
    return f"{name}{SEPARATOR}{version}"


def split(stem: str) -> tuple[str, str | None]:
    """Return the model and the version in the name of an archive; None without a version."""
    name, _, version = stem.partition(SEPARATOR)
    return name, version or None


def newest(versions: Iterable[str]) -> str:
    """Return the highest version: numbers are compared as numbers."""
    return max(versions, key=_parts)


def read_defaults(store: Path) -> dict[str, str]:
    """Return the default version of each model that a rollout has set one for.

    Raises:
        KitError: the file has no versions by name.
    """
    path = store / DEFAULTS
    if not path.is_file():
        return {}
    try:
        found = read_json(path)
        return {str(name): str(version) for name, version in found.items()}
    except (ValueError, AttributeError):
        raise KitError(f"{path} is damaged; remove it, and set the defaults again.") from None


def write_default(store: Path, name: str, version: str) -> None:
    """Write the default version of a model, which the next start of the server loads."""
    defaults = {**read_defaults(store), name: version}
    draft = store / f".{DEFAULTS}"
    draft.write_text(json.dumps(defaults, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    draft.replace(store / DEFAULTS)


def _parts(version: str) -> list[tuple[int, int, str]]:
    parts = re.findall(r"\d+|[^\d.]+", version)
    return [(1, int(part), "") if part.isdecimal() else (0, 0, part) for part in parts]
