"""Read a .mar whose bytes are exactly the files that its directory lists.

A zip file can be read in two ways: by the directory at its end, or from its first byte on, one
entry after the other, as TorchServe reads it. Where the two differ, a program can check other files
than another program unpacks. :class:`Mar` reads only archives in which they cannot differ: the
entries fill the file from its first byte to the directory, in the order of the directory, and say
the same as the directory does. `scripts/create_archive.py` writes such archives.

This module imports nothing of `handlers`, as :mod:`hf_serve.hosts.archives` does not.
"""

from __future__ import annotations

import hashlib
import stat
import struct
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

CHUNK = 1 << 20
# Bytes of a directory, or of a file that is read whole: more than an archive of a model has.
MAX_READ = 32 << 20

HEADER, HEADER_MARK = struct.Struct("<4s5H3L2H"), b"PK\3\4"
ENTRY, ENTRY_MARK = struct.Struct("<4s6H3L5H2L"), b"PK\1\2"
END, END_MARK = struct.Struct("<4s4H2LH"), b"PK\5\6"
# Records of archives with large files: zip64.
END64, END64_MARK = struct.Struct("<4sQ2H2L4Q"), b"PK\6\6"
LOCATOR, LOCATOR_MARK = struct.Struct("<4sLQL"), b"PK\6\7"
EXTRA64 = 1
MAX_16, MAX_32 = 0xFFFF, 0xFFFFFFFF
STORED, DEFLATED = 0, 8
UTF_8 = 0x800


def is_mar(path: Path) -> bool:
    """Return whether a file begins as a .mar does."""
    with path.open("rb") as file:
        return file.read(len(HEADER_MARK)) == HEADER_MARK


class WrongMar(Exception):
    """A file is no .mar, or has other bytes than the files that its directory lists."""

    def __init__(self, path: Path, problem: str) -> None:
        self.path, self.problem = path, problem
        super().__init__(f"{path.name} {problem}")


@dataclass(frozen=True)
class Entry:
    """A file of an archive, or a folder, whose name ends with `/`.

    Attributes:
        method: how it is packed: `STORED` or `DEFLATED`.
        checksum: the CRC-32 of its content.
        packed: its bytes in the archive.
        size: its bytes.
        offset: where its header is in the archive.
        common: what header and directory say alike: flags, method, time, date and CRC-32.
    """

    name: str
    method: int
    checksum: int
    packed: int
    size: int
    offset: int
    common: tuple[int, ...]

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder."""
        return self.name.endswith("/")


class Mar:
    """An open .mar: `with Mar(path) as mar: …`.

    Attributes:
        sha256: the digest of the whole file, once :meth:`contents` has come to its end.

    Raises:
        WrongMar: it is none, or its entries are not exactly its bytes.
        OSError: it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sha256 = ""
        self._file: IO[bytes] = path.open("rb")
        try:
            start, directory, self._end = self._read_end()
            self.entries = tuple(self._read_entries(directory))
            self._check_names()
            self._check_places(start)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def contents(self) -> Iterator[tuple[str, Iterator[bytes]]]:
        """Yield the name and the content of each file, and read each byte of the archive once.

        Raises:
            WrongMar: a content is not what the directory says, or the file changes meanwhile.
        """
        whole = hashlib.sha256()

        def take(count: int) -> bytes:
            found = self._take(count)
            whole.update(found)
            return found

        self._file.seek(0)
        for entry in self.entries:
            self._check_header(entry, take)
            chunks = self._chunks(entry, take)
            if not entry.is_folder:
                yield entry.name, chunks
            for _ in chunks:
                pass
        if take(len(self._end)) != self._end or self._file.read(1):
            raise WrongMar(self.path, "changes while it is read")
        self.sha256 = whole.hexdigest()

    def digests(self) -> dict[str, str]:
        """Return the SHA-256 of each file; of a folder, which has none, "".

        Raises:
            WrongMar: as of :meth:`contents`.
        """
        found = {name: _digest(chunks) for name, chunks in self.contents()}
        return {**found, **{entry.name: "" for entry in self.entries if entry.is_folder}}

    def unpack(self, folder: Path) -> dict[str, str]:
        """Write the files to a folder that is new, and return the digests of what was written.

        Raises:
            WrongMar: as of :meth:`contents`; some files can have been written.
        """
        folder.mkdir(parents=True)
        for entry in self.entries:
            inside = folder / entry.name
            (inside if entry.is_folder else inside.parent).mkdir(parents=True, exist_ok=True)
        found = {}
        for name, chunks in self.contents():
            with (folder / name).open("xb") as target:
                found[name] = _digest(_written(chunks, target))
        return {**found, **{entry.name: "" for entry in self.entries if entry.is_folder}}

    def read(self, name: str) -> bytes:
        """Return the content of a file.

        Raises:
            KeyError: there is no such file.
            WrongMar: it is not what the directory says.
        """
        entry = {entry.name: entry for entry in self.entries}[name]
        if entry.size > MAX_READ:
            raise WrongMar(self.path, f"has {entry.size} bytes of {name}, which is read whole")
        self._file.seek(entry.offset)
        self._check_header(entry, self._take)
        return b"".join(self._chunks(entry, self._take))

    def _read_end(self) -> tuple[int, bytes, bytes]:
        """Return where the directory begins, the directory, and all bytes from there on."""
        size = self._file.seek(0, 2)
        if size < END.size:
            raise WrongMar(self.path, "is no .mar")
        mark, *disks, here, count, length, start, comment = END.unpack(
            self._at(size - END.size, END.size)
        )
        if mark != END_MARK:
            raise WrongMar(self.path, "is no .mar, or has bytes after its directory")
        end = size - END.size
        if start + length != end:
            end -= LOCATOR.size + END64.size
            small = (here, count, length, start)
            here, count, length, start = self._large_end(end)
            limits = MAX_16, MAX_16, MAX_32, MAX_32
            if small != tuple(map(min, (here, count, length, start), limits)):
                raise WrongMar(self.path, "has two ends that differ")
        if any(disks) or comment or here != count or start + length != end:
            raise WrongMar(self.path, "has bytes between its directory and its end")
        if length > MAX_READ:
            raise WrongMar(self.path, f"has a directory of {length} bytes")
        rest = self._at(start, size - start)
        self._count = count
        return start, rest[:length], rest

    def _large_end(self, place: int) -> tuple[int, ...]:
        """Return what the end of an archive with large files says: counts, length and start."""
        if place < 0:
            raise WrongMar(self.path, "has another length than its end says")
        record = self._at(place, END64.size + LOCATOR.size)
        mark, left, _, _, disk, first, *numbers = END64.unpack(record[: END64.size])
        found = mark, left, disk, first, *LOCATOR.unpack(record[END64.size :])
        if found != (END64_MARK, END64.size - 12, 0, 0, LOCATOR_MARK, 0, place, 1):
            raise WrongMar(self.path, "has bytes that belong to none of its files")
        return tuple(numbers)

    def _read_entries(self, directory: bytes) -> Iterator[Entry]:
        place = 0
        for _ in range(self._count):
            if len(directory) - place < ENTRY.size:
                raise WrongMar(self.path, "has a directory that is not whole")
            fields = ENTRY.unpack_from(directory, place)
            place += ENTRY.size
            lengths = fields[10:13]
            texts = []
            for length in lengths:
                texts.append(directory[place : place + length])
                place += length
            yield self._entry(fields, *texts)
        if place != len(directory):
            raise WrongMar(self.path, "has a directory with bytes that are no entry")

    def _entry(self, fields: tuple[Any, ...], raw: bytes, extra: bytes, comment: bytes) -> Entry:
        mark, _, _, *common, packed, size, _, _, _, disk, _, attributes, offset = fields
        name = self._name(raw, common[0])
        if mark != ENTRY_MARK or disk:
            raise WrongMar(self.path, f"has an entry that is none, in the place of {name}")
        if comment:
            raise WrongMar(self.path, f"has a comment on {name}")
        large = [value for value in (size, packed, offset) if value == MAX_32]
        values = iter(self._extra(name, extra, len(large)))
        size, packed, offset = (
            next(values) if value == MAX_32 else value for value in (size, packed, offset)
        )
        flags, method, checksum = common[0], common[1], common[-1]
        is_folder = name.endswith("/")
        kind = stat.S_IFMT(attributes >> 16)
        if flags & ~UTF_8:
            raise WrongMar(self.path, f"has {name} encrypted, or with its size after its content")
        if method not in (STORED, DEFLATED) or (method == STORED and packed != size):
            raise WrongMar(self.path, f"has {name} packed in a way that this kit does not read")
        if kind not in (0, stat.S_IFDIR if is_folder else stat.S_IFREG) or (is_folder and size):
            raise WrongMar(self.path, f"has {name}, which is neither a file nor a folder")
        return Entry(name, method, checksum, packed, size, offset, tuple(common))

    def _name(self, raw: bytes, flags: int) -> str:
        """Return the name of an entry, which every program reads alike."""
        try:
            name = raw.decode("utf-8" if flags & UTF_8 else "ascii")
        except UnicodeDecodeError:
            raise WrongMar(self.path, f"has a name that is not UTF-8, {raw!r:.80}") from None
        if problem := problem_of_name(name):
            raise WrongMar(self.path, problem)
        return name

    def _extra(self, name: str, extra: bytes, count: int) -> tuple[int, ...]:
        """Return the sizes in an extra field, which has nothing else."""
        if not count and not extra:
            return ()
        layout = struct.Struct(f"<2H{count}Q")
        if not count or len(extra) != layout.size:
            raise WrongMar(self.path, f"has an extra field of {name}")
        kind, length, *values = layout.unpack(extra)
        if (kind, length) != (EXTRA64, 8 * count):
            raise WrongMar(self.path, f"has an extra field of {name}")
        return tuple(values)

    def _check_names(self) -> None:
        if found := problem_of_names([entry.name for entry in self.entries]):
            raise WrongMar(self.path, found[-1])

    def _check_places(self, start: int) -> None:
        """Check that the entries fill the file up to the directory."""
        place = 0
        for entry in self.entries:
            if entry.offset != place:
                problem = "has bytes that belong to none of its files, or files in another order"
                raise WrongMar(self.path, f"{problem}, before {entry.name}")
            self._file.seek(place)
            place += self._check_header(entry, self._take) + entry.packed
        if place != start:
            raise WrongMar(self.path, "has bytes that belong to none of its files")

    def _check_header(self, entry: Entry, take: Callable[[int], bytes]) -> int:
        """Check that the header of an entry says what the directory says; return its length."""
        mark, _, *common, packed, size, length, more = HEADER.unpack(take(HEADER.size))
        name, extra = take(length), take(more)
        if packed == size == MAX_32:
            size, packed = self._extra(entry.name, extra, 2)
        elif extra:
            raise WrongMar(self.path, f"has an extra field of {entry.name}")
        found = mark, tuple(common), packed, size, name
        if found != (HEADER_MARK, entry.common, entry.packed, entry.size, entry.name.encode()):
            raise WrongMar(
                self.path, f"has a header of {entry.name} that differs from its directory"
            )
        return HEADER.size + length + more

    def _chunks(self, entry: Entry, take: Callable[[int], bytes]) -> Iterator[bytes]:
        """Yield the content of an entry, whose header was read."""
        checksum = size = 0
        parts = (take(min(CHUNK, entry.packed - at)) for at in range(0, entry.packed, CHUNK))
        wrong = WrongMar(self.path, f"has another content of {entry.name} than its directory says")
        try:
            for chunk in _inflated(parts) if entry.method == DEFLATED else parts:
                checksum, size = zlib.crc32(chunk, checksum), size + len(chunk)
                if size > entry.size:
                    raise wrong
                yield chunk
        except zlib.error:
            raise wrong from None
        if (size, checksum) != (entry.size, entry.checksum):
            raise wrong

    def _take(self, count: int) -> bytes:
        found = self._file.read(count)
        if len(found) != count:
            raise WrongMar(self.path, "is not whole")
        return found

    def _at(self, place: int, count: int) -> bytes:
        self._file.seek(place)
        return self._take(count)


def problem_of_name(name: str) -> str | None:
    """Return why a name is not the path of one file on every system; None if it is."""
    parts = name.removesuffix("/").split("/")
    if not name.isprintable() or "\\" in name or not {"", ".", ".."}.isdisjoint(parts):
        return f"has a name that leads elsewhere, {name!r:.80}"
    return None


def problem_of_names(names: Sequence[str]) -> tuple[list[str], str] | None:
    """Return two names that are one on some file system, or one of a file that is a folder, too.

    With them is what is wrong; None if nothing is.
    """
    seen: dict[str, str] = {}
    folders: set[str] = set()
    for name in names:
        key = _folded(name)
        if key in seen:
            return [seen[key], name], f"has {name} twice"
        seen[key] = name
        parts = key.split("/")
        folders.update("/".join(parts[:count]) for count in range(1, len(parts)))
    files = {_folded(name): name for name in names if not name.endswith("/")}
    if both := sorted(folders & files.keys()):
        return [files[both[0]]], f"has {both[0]} as a file and as a folder"
    return None


def _inflated(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Yield what deflated bytes become.

    Raises:
        zlib.error: they do not end where their stream ends.
    """
    stream = zlib.decompressobj(-zlib.MAX_WBITS)
    for part in parts:
        waiting = part
        while waiting and not stream.eof:
            yield stream.decompress(waiting, CHUNK)
            waiting = stream.unconsumed_tail
        if waiting or stream.unused_data:
            break
    if not stream.eof or stream.unused_data:
        raise zlib.error("bytes after the end of the stream, or none at its end")


def _written(chunks: Iterable[bytes], target: IO[bytes]) -> Iterator[bytes]:
    for chunk in chunks:
        target.write(chunk)
        yield chunk


def _digest(chunks: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def _folded(name: str) -> str:
    """Return what file systems compare that ignore case, or how letters are composed."""
    return unicodedata.normalize("NFKC", name.removesuffix("/")).casefold()
