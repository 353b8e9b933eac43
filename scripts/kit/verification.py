"""Check an archive before a server unpacks it and runs the code in it."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from handlers.runtime.integrity import (
    PUBLIC_KEY,
    SIGNATURE,
    SUMS,
    DamagedArchive,
    Source,
    UntrustedArchive,
    check_sums,
    read_sums,
    unlisted,
    verify_signature,
)


def verify_archive(path: Path, public_key: Path | None = None) -> bool:
    """Check the sums of an archive and, given a key, its signature; return whether it has sums.

    Unlike a worker, which may find files that TorchServe has added, it refuses files without a sum.

    Raises:
        DamagedArchive: a file is missing, was changed, or has no sum.
        UntrustedArchive: the signature is missing or wrong, or the archive is a .tar.gz.
        UnreadableKey: there is no key in the file.
    """
    if not path.exists():
        raise UntrustedArchive(f"there is no {path}")
    if path.is_file() and not zipfile.is_zipfile(path):
        if public_key:
            raise UntrustedArchive(f"{path.name} is no .mar, whose signature could be checked")
        return False
    if path.is_dir():
        return _verify(_in_folder(path), public_key)
    with zipfile.ZipFile(path) as archive:
        places = [entry.filename for entry in archive.infolist() if not entry.is_dir()]
        return _verify({place: zipfile.Path(archive, place) for place in places}, public_key)


def require_signed(archives: Iterable[Path], public_key: Path) -> None:
    """Check the signatures of archives, and have the processes that load them check them, too.

    Raises:
        DamagedArchive: a file is missing, was changed, or has no sum.
        UntrustedArchive: a signature is missing or wrong, or an archive is a .tar.gz.
        UnreadableKey: there is no key in the file.
    """
    for path in archives:
        verify_archive(path, public_key)
    os.environ[PUBLIC_KEY] = str(public_key.resolve())


def _verify(files: Mapping[str, Source], public_key: Path | None) -> bool:
    sums, signature = (_content(files.get(name)) for name in (SUMS, SIGNATURE))
    if public_key:
        verify_signature(sums, signature, public_key)
    if sums is None:
        return False
    listed = read_sums(sums)
    if strange := unlisted(files, listed):
        raise DamagedArchive(f"{strange[0]} has no sum in {SUMS}")
    check_sums(listed, files)
    return True


def _in_folder(folder: Path) -> dict[str, Source]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path for path in files}


def _content(source: Source | None) -> bytes | None:
    return source if source is None or isinstance(source, bytes) else source.read_bytes()
