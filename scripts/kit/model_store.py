"""A model store: which archives lie in it, and under which names."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from handlers.errors import KitError

MANIFEST = Path("MAR-INF") / "MANIFEST.json"
SUFFIXES = (".mar", ".tar.gz")


class ArchiveNotFound(KitError):
    """There is nothing to serve, or not what was asked for."""

    def __init__(self, store: Path, missing: list[str]) -> None:
        self.store, self.missing = store, missing
        lacks = f"has no archive of {', '.join(missing)}" if missing else "has no archives"
        super().__init__(f"{store} {lacks}; pack them with `python scripts/create_archive.py`.")


def list_archives(store: Path, names: Collection[str] = ()) -> dict[str, str]:
    """Return the archives' file names by model name: the file's own name without its suffix.

    Of one model packed in several formats, the .mar is taken, then the .tar.gz, then the folder.

    Raises:
        ArchiveNotFound: when the store has none, or not every one of `names`.
    """
    found = {path.parents[1].name: path.parents[1].name for path in store.glob(f"[!.]*/{MANIFEST}")}
    for suffix in reversed(SUFFIXES):
        files = sorted(store.glob(f"[!.]*{suffix}"))
        found |= {path.name.removesuffix(suffix): path.name for path in files}
    missing = [name for name in names if name not in found]
    if missing or not found:
        raise ArchiveNotFound(store, missing)
    return {name: found[name] for name in names or sorted(found)}
