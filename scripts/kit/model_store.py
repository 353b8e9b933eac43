"""List the archives of a model store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path

from handlers.errors import KitError
from scripts.kit.versions import newest, read_defaults, split, versioned

MANIFEST = Path("MAR-INF") / "MANIFEST.json"
SUFFIXES = (".mar", ".tar.gz")


class ArchiveNotFound(KitError):
    """The model store is empty or lacks a requested model."""

    def __init__(self, store: Path, missing: list[str]) -> None:
        self.store, self.missing = store, missing
        problem = f"has no archive of {', '.join(missing)}" if missing else "has no archives"
        super().__init__(f"{store} {problem}; pack them with `python scripts/create_archive.py`.")


def list_archives(store: Path, names: Collection[str] = ()) -> dict[str, str]:
    """Return archive file names by model name, which is the file name without its suffix.

    If a model is packed in several formats, a .mar takes precedence over a .tar.gz, and that over
    a folder. Of the versions of a model, `NAME@VERSION.mar`, the default is listed: the one that a
    rollout has set, otherwise the newest; one without a version is the oldest.

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
    return {name: _default(name, known, found, defaults) for name, known in versions.items()}


def _default(
    name: str, versions: list[str], found: Mapping[str, str], defaults: Mapping[str, str]
) -> str:
    if not versions:
        return found[name]
    chosen = defaults.get(name)
    version = chosen if chosen in versions else newest(versions)
    return found[versioned(name, version)]
