"""Write and unpack the three archive formats: mar, tgz and no-archive.

Output is reproducible: entry order, timestamps, modes and owners are fixed.
"""

from __future__ import annotations

import gzip
import io
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from operator import eq
from pathlib import Path
from typing import IO, Literal

from hf_serve.hosts.mar_reader import Mar
from hf_serve.scripts.archives.contents import Contents, size_of
from hf_serve.scripts.archives.manifest import timestamp

CHUNK = 4 << 20
READABLE = 0o644

FormatName = Literal["mar", "tgz", "no-archive"]
Advance = Callable[[int], None]


@dataclass(frozen=True)
class ArchiveFormat:
    """An archive format.

    Attributes:
        write: `write(path, name, parts, advance)`; calls `advance` with the size of each chunk.
        unpack: `unpack(path, folder)`; returns the folder that TorchServe would load.
    """

    suffix: str
    write: Callable[[Path, str, Contents, Advance], None]
    unpack: Callable[[Path, Path], Path]


def is_current_mar(path: Path, parts: Contents) -> bool:
    """Return whether a .mar contains exactly these files, compared by metadata and checksum."""
    if not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
    expected = [_zip_entry(place, source) for place, source in parts.items()]
    if list(map(_metadata, entries)) != list(map(_metadata, expected)):
        return False
    checksums = (entry.CRC for entry in entries)
    return all(map(eq, checksums, map(_checksum, parts.values())))


def _write_mar(path: Path, name: str, parts: Contents, advance: Advance) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for place, source in parts.items():
            # With a known size zipfile writes no data descriptor, which Java rejects in stored
            # entries, and allows entries above 4 GB.
            with archive.open(_zip_entry(place, source), "w") as target:
                _copy(source, target, advance)


def _unpack_mar(path: Path, folder: Path) -> Path:
    with Mar(path) as mar:
        mar.unpack(folder)
    return folder


def _write_tgz(path: Path, name: str, parts: Contents, advance: Advance) -> None:
    # Weights barely compress: level 1 is as small as level 9 and much faster.
    with (
        path.open("wb") as raw,
        gzip.GzipFile("", "wb", compresslevel=1, fileobj=raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for place, source in parts.items():
            entry = tarfile.TarInfo(f"{name}/{place}")
            entry.size, entry.mode = size_of(source), READABLE
            entry.mtime = int(timestamp().timestamp())
            with _reader(source, advance) as content:
                archive.addfile(entry, content)


def _unpack_tgz(path: Path, folder: Path) -> Path:
    with tarfile.open(path) as archive:
        archive.extractall(folder, filter="data")
    (inside,) = folder.iterdir()
    return inside


def _write_folder(path: Path, name: str, parts: Contents, advance: Advance) -> None:
    for place, source in parts.items():
        target = path / place
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as content:
            _copy(source, content, advance)


def _zip_entry(place: str, source: Path | bytes) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(place, timestamp().timetuple()[:6])
    entry.create_system, entry.external_attr = 3, READABLE << 16  # as made on Unix
    entry.file_size = size_of(source)
    return entry


def _metadata(entry: zipfile.ZipInfo) -> tuple[object, ...]:
    zip_time = (*entry.date_time[:5], entry.date_time[5] // 2)
    attributes = entry.create_system, entry.external_attr, entry.compress_type
    return entry.filename, entry.file_size, zip_time, *attributes


def _checksum(source: Path | bytes) -> int:
    checksum = 0
    with _reader(source) as content:
        while chunk := content.read(CHUNK):
            checksum = zlib.crc32(chunk, checksum)
    return checksum


def _copy(source: Path | bytes, target: IO[bytes], advance: Advance) -> None:
    with _reader(source, advance) as content:
        shutil.copyfileobj(content, target, CHUNK)


def _reader(source: Path | bytes, advance: Advance = lambda _: None) -> IO[bytes]:
    if isinstance(source, Path):
        return _Counted(source, advance)
    advance(len(source))
    return io.BytesIO(source)


class _Counted(io.FileIO):
    """A file that reports the number of bytes read."""

    def __init__(self, path: Path, advance: Advance) -> None:
        super().__init__(path)
        self._advance = advance

    def read(self, size: int | None = -1) -> bytes:
        content = super().read(-1 if size is None else size) or b""
        self._advance(len(content))
        return content


ARCHIVE_FORMATS: dict[FormatName, ArchiveFormat] = {
    "mar": ArchiveFormat(".mar", _write_mar, _unpack_mar),
    "tgz": ArchiveFormat(".tar.gz", _write_tgz, _unpack_tgz),
    "no-archive": ArchiveFormat("", _write_folder, lambda path, _: path),
}
