"""Archives that can be read in two ways: none is verified, and none is unpacked."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from hf_serve.handlers.checkpoints.archive_signature import (
    SIGNATURE,
    SUMS,
    DamagedArchive,
    UntrustedArchive,
    sign,
    sums_of,
)
from hf_serve.hosts import mar_reader as mar_module
from hf_serve.hosts.archives import FOLDER_VARIABLE, ArchiveError, open_archive
from hf_serve.hosts.mar_reader import Mar, WrongMar
from hf_serve.scripts.archives.archive_formats import ARCHIVE_FORMATS
from hf_serve.scripts.archives.manifest import MANIFEST_FILE, manifest
from hf_serve.scripts.archives.verification import signed_digest, unpack_signed, verify_archive
from tests.sentences import refused

CODE = b"print('signed')\n"
OTHER = b"print('another')"
LINK = 0o120777 << 16


@dataclass(frozen=True)
class Packed:
    """An entry as it is written: what its header says, and what the directory says.

    Attributes:
        name: its path.
        content: its content.
        method: how it is packed.
        flags: its flags.
        extra: the extra field of the header; `more` is that of the directory.
        comment: its comment.
        attributes: its mode on Unix, 16 bits to the left.
        header: what the header says in another way than the directory.
        before: bytes before the header, and `after` the content.
    """

    name: str
    content: bytes
    method: int = 0
    flags: int = 0
    extra: bytes = b""
    more: bytes = b""
    comment: bytes = b""
    attributes: int = 0o100644 << 16
    header: dict[str, object] = field(default_factory=dict)
    before: bytes = b""
    after: bytes = b""

    @property
    def packed(self) -> bytes:
        return deflated(self.content) if self.method else self.content

    def local(self) -> bytes:
        values = {"name": self.name, "size": len(self.content), "flags": self.flags}
        values |= {"packed": len(self.packed), "crc": zlib.crc32(self.content)}
        values |= {"method": self.method, "time": 0, "date": 33, **self.header}
        name = str(values["name"]).encode()
        fields = [values[each] for each in ("flags", "method", "time", "date", "crc")]
        sizes = values["packed"], values["size"], len(name), len(self.extra)
        head = struct.pack("<4s5H3L2H", b"PK\3\4", 20, *fields, *sizes)
        return self.before + head + name + self.extra + self.packed + self.after

    def listed(self, offset: int) -> bytes:
        name = self.name.encode()
        return (
            struct.pack(
                "<4s6H3L5H2L",
                *(b"PK\1\2", 0x314, 20, self.flags, self.method, 0, 33, zlib.crc32(self.content)),
                *(len(self.packed), len(self.content), len(name), len(self.more)),
                *(len(self.comment), 0, 0, self.attributes, offset),
            )
            + name
            + self.more
            + self.comment
        )


def deflated(content: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(content) + packer.flush()


def archive(
    entries: list[Packed],
    *,
    listed: list[int] | None = None,
    gap: bytes = b"",
    comment: bytes = b"",
) -> bytes:
    """Return a zip file of entries, of which the directory lists those with these numbers."""
    body, offsets = b"", []
    for entry in entries:
        offsets.append(len(body) + len(entry.before))
        body += entry.local()
    body += gap
    numbers = range(len(entries)) if listed is None else listed
    directory = b"".join(entries[number].listed(offsets[number]) for number in numbers)
    return body + directory + end(len(numbers), len(directory), len(body), comment)


def end(count: int, length: int, start: int, comment: bytes = b"") -> bytes:
    return (
        struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, count, count, length, start, len(comment))
        + comment
    )


@pytest.fixture(scope="module")
def entries(keys: Path) -> list[Packed]:
    """The entries of a signed archive."""
    files = {
        "handlers/engine.py": CODE,
        "transformers_handler.py": CODE,
        MANIFEST_FILE: manifest("qa", "1.0"),
    }
    sums = sums_of(files)
    files |= {SUMS: sums, SIGNATURE: sign(sums, keys / "own.pem")}
    return [Packed(name, content) for name, content in files.items()]


Change = Callable[[list[Packed]], bytes]


def changes() -> Iterator[tuple[str, Change]]:
    """Yield what can be done to a signed archive whose directory, read alone, is unchanged."""
    strange = Packed("sitecustomize.py", OTHER)

    def added(*more: Packed) -> Change:
        return lambda entries: archive([*entries, *more])

    def changed(number: int, **keys: Any) -> Change:
        def change(entries: list[Packed]) -> bytes:
            entry = replace(entries[number], **keys)
            return archive([*entries[:number], entry, *entries[number + 1 :]])

        return change

    def hidden(at: int, *more: Packed) -> Change:
        """Write entries that the directory does not list."""

        def change(entries: list[Packed]) -> bytes:
            count = len(entries)
            listed = [*range(at), *range(at + len(more), count + len(more))]
            return archive([*entries[:at], *more, *entries[at:]], listed=listed)

        return change

    yield "prefix of bytes", lambda entries: b"#!/bin/sh\n" + archive(entries)
    yield "prefix of bytes that offsets count", changed(0, before=b"#!/bin/sh\n")
    yield "prefix of an archive", lambda entries: archive([strange]) + archive(entries)
    yield "hidden first entry", hidden(0, strange)
    yield "hidden entry in the middle", hidden(2, strange)
    yield "hidden last entry", hidden(5, strange)
    yield "hidden second handler", hidden(5, Packed("transformers_handler.py", OTHER))
    yield "gap", changed(1, after=b"\0" * 40)
    yield "gap before the directory", lambda entries: archive(entries, gap=b"\0")
    yield "trailing bytes", lambda entries: archive(entries) + b"\0"
    yield "trailing archive", lambda entries: archive(entries) + archive([strange])
    yield "many trailing bytes", lambda entries: archive(entries) + bytes(70_000)
    yield "comment", lambda entries: archive(entries, comment=b"hello")
    yield "comment with an archive", lambda entries: archive(entries, comment=archive([strange]))
    yield "comment of an entry", changed(0, comment=b"hello")
    yield "order", lambda entries: archive(entries, listed=[1, 0, 2, 3, 4])
    yield "twice in the directory", lambda entries: archive(entries, listed=[0, 0, 1, 2, 3, 4])
    twice = Packed("transformers_handler.py", OTHER)
    yield "twice", added(twice)
    yield "twice, the other first", lambda entries: archive([twice, *entries])
    yield "twice in other letters", added(Packed("Transformers_Handler.py", OTHER))
    composed = Packed("\u00e9.py", OTHER, flags=0x800), Packed("e\u0301.py", OTHER, flags=0x800)
    yield "twice with composed letters", added(*composed)
    yield "file and folder", added(Packed("handlers", OTHER))
    yield "folder and file", added(Packed("handlers/engine.py/x.py", OTHER))
    yield "line separator in a name", added(Packed("x\u2028.py", OTHER, flags=0x800))
    for name in ("/etc/x", "../x", "a/../x", "./x", "a//x", "..\\x", "a\0b", "x\n", ""):
        yield f"name {name!r}", added(Packed(name, OTHER))
    yield "name in no UTF-8", changed(0, name="handlers/\u00e9.py")
    yield "link", added(Packed("x.py", b"/tmp", attributes=LINK))
    yield "file as a link", changed(0, attributes=LINK)
    yield "file without a sum", added(strange)
    yield "folder without a sum", added(Packed("yaml/", b"", attributes=0))
    yield "folder with a content", added(Packed("x/", OTHER, attributes=0))
    yield "extra field", changed(0, extra=b"UT\5\0\0\0\0\0\0", more=b"UT\5\0\0\0\0\0\0")
    yield "extra field of the header", changed(0, extra=b"UT\5\0\0\0\0\0\0")
    yield "extra field of the directory", changed(0, more=b"UT\5\0\0\0\0\0\0")
    large = struct.pack("<2H2Q", 1, 16, len(CODE), len(CODE))
    yield "sizes of a small file in an extra field", changed(0, extra=large)
    other = struct.pack("<2H2Q", 1, 16, 1, 1)
    saturated = {"size": 0xFFFFFFFF, "packed": 0xFFFFFFFF}
    yield "other sizes in an extra field", changed(0, extra=other, header=saturated)
    descriptor = b"PK\7\x08" + struct.pack("<3L", zlib.crc32(CODE), len(CODE), len(CODE))
    empty = {"size": 0, "packed": 0, "crc": 0}
    yield "data descriptor", changed(0, flags=8, header=empty, after=descriptor)
    yield "data descriptor, deflated", changed(0, flags=8, method=8, header=empty, after=descriptor)
    yield "data descriptor that flags deny", changed(0, after=descriptor)
    yield "encrypted", changed(0, flags=1)
    yield "another method", changed(0, method=9)
    headers: dict[str, object] = {"name": "handlers/enginE.py", "flags": 0x800, "method": 8}
    headers |= {"size": 1, "packed": 1, "crc": 1, "time": 1, "date": 34}
    for key, value in headers.items():
        yield f"header with another {key}", changed(0, header={key: value})
    yield "header with a shorter name", changed(0, header={"name": "x.py"})

    def second_directory(entries: list[Packed]) -> bytes:
        return archive(entries) + archive(entries)[-22 - len(directory_of(entries)) :]

    yield "second directory", second_directory
    yield "second end", lambda entries: archive(entries) + end(0, 0, 0)
    yield (
        "end of another count",
        lambda entries: (
            archive(entries)[:-22] + end(4, len(directory_of(entries)), body_of(entries))
        ),
    )
    yield (
        "end with a longer directory",
        lambda entries: (
            archive(entries)[:-22] + end(5, len(directory_of(entries)) + 1, body_of(entries) - 1)
        ),
    )
    yield (
        "entry of another disk",
        lambda entries: archive(entries)[:-18] + b"\1" + archive(entries)[-17:],
    )
    yield "cut", lambda entries: archive(entries)[:-1]
    yield "cut at the start", lambda entries: archive(entries)[1:]
    yield "nothing", lambda _: b""
    yield "large end of other numbers", lambda entries: large_end(archive(entries), 1)
    yield "changed content", lambda entries: archive(entries).replace(b"'signed'", b"'Signed'", 1)
    yield "content changed with its CRC", changed(0, content=OTHER)
    yield "file removed", lambda entries: archive(entries[1:])
    yield "signature removed", lambda entries: archive(entries[:-1])


def directory_of(entries: list[Packed]) -> bytes:
    return archive(entries)[body_of(entries) : -22]


def body_of(entries: list[Packed]) -> int:
    return sum(len(entry.local()) for entry in entries)


def large_end(content: bytes, more: int = 0) -> bytes:
    """Return an archive with the records of large archives, which add `more` to its count."""
    _, _, _, count, _, length, start, _ = struct.unpack("<4s4H2LH", content[-22:])
    numbers = count + more, count + more, length, start
    record = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, *numbers)
    locator = struct.pack("<4sLQL", b"PK\6\7", 0, len(content) - 22, 1)
    return content[:-22] + record + locator + content[-22:]


CHANGES = dict(changes())


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "cache"))


@pytest.fixture
def mar(tmp_path: Path) -> Path:
    return tmp_path / "qa.mar"


@pytest.mark.parametrize("name", CHANGES)
def test_no_archive_is_verified_that_is_not_what_was_signed(
    name: str, entries: list[Packed], mar: Path, keys: Path
) -> None:
    mar.write_bytes(CHANGES[name](entries))
    folder = mar.parent / "unpacked"
    with pytest.raises((DamagedArchive, UntrustedArchive)):
        verify_archive(mar, keys / "own.pub")
    with pytest.raises((DamagedArchive, UntrustedArchive)):
        unpack_signed(mar, folder, keys / "own.pub")
    with pytest.raises((DamagedArchive, UntrustedArchive)):
        signed_digest(mar, keys / "own.pub")
    assert not folder.exists()


SIGNED_ONLY = ("without a sum", "with its CRC", "removed")


@pytest.mark.parametrize("name", [name for name in CHANGES if not name.endswith(SIGNED_ONLY)])
def test_no_archive_is_unpacked_that_can_be_read_in_two_ways(
    name: str, entries: list[Packed], mar: Path
) -> None:
    mar.write_bytes(CHANGES[name](entries))
    with pytest.raises(ArchiveError):
        open_archive(mar)
    with pytest.raises(WrongMar):
        ARCHIVE_FORMATS["mar"].unpack(mar, mar.parent / "unpacked")
    with pytest.raises(DamagedArchive):
        verify_archive(mar)
    assert [path.name for path in mar.parent.iterdir() if path.suffix != ".mar"] in (
        ["cache"],
        ["cache", "unpacked"],
        ["unpacked", "cache"],
    )


def test_an_archive_as_it_was_signed_is_verified_and_unpacked(
    entries: list[Packed], mar: Path, keys: Path
) -> None:
    stored, packed = archive(entries), archive([replace(each, method=8) for each in entries])
    for number, content in enumerate((stored, packed, large_end(stored))):
        mar.write_bytes(content)
        assert verify_archive(mar, keys / "own.pub")
        folder = unpack_signed(mar, mar.parent / str(number), keys / "own.pub")
        assert (folder / "handlers" / "engine.py").read_bytes() == CODE
        assert (open_archive(mar).folder / "handlers" / "engine.py").read_bytes() == CODE
        assert signed_digest(mar, keys / "own.pub") == open_archive(mar).sha256


def test_archives_of_other_packers_are_read(mar: Path) -> None:
    """Those that deflate, list folders, and write files of more than four gigabytes."""
    with zipfile.ZipFile(mar, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("deep/", "")
        packed.writestr("deep/\u00e9.py", CODE)
        with packed.open("large.bin", "w", force_zip64=True) as large:
            large.write(CODE * 1000)
    with Mar(mar) as found:
        assert found.unpack(mar.parent / "unpacked").keys() == {
            "deep/",
            "deep/\u00e9.py",
            "large.bin",
        }
        assert found.read("large.bin") == CODE * 1000


def test_a_file_that_is_larger_than_its_directory_says_is_not_unpacked(
    entries: list[Packed], mar: Path
) -> None:
    class Bomb(Packed):
        @property
        def packed(self) -> bytes:
            return deflated(bytes(50 << 20))

    mar.write_bytes(archive([Bomb("x", b"0" * 100, method=8), *entries]))
    with refused(WrongMar, "x"), Mar(mar) as found:
        found.unpack(mar.parent / "unpacked")
    assert (mar.parent / "unpacked" / "x").stat().st_size <= 2 << 20


def test_what_is_read_whole_may_be_as_large_as_the_limit(
    mar: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(mar, "w") as packed:
        packed.writestr("x", b"0" * 100)
    with zipfile.ZipFile(mar) as found:
        directory = mar.stat().st_size - found.start_dir - mar_module.END.size
    for limit, is_read in ((100, True), (99, False)):
        with Mar(mar) as opened:
            monkeypatch.setattr(mar_module, "MAX_READ", limit)
            if is_read:
                assert opened.read("x") == b"0" * 100
            else:
                with pytest.raises(WrongMar):
                    opened.read("x")
        monkeypatch.setattr(mar_module, "MAX_READ", directory)
    monkeypatch.setattr(mar_module, "MAX_READ", directory - 1)
    with pytest.raises(WrongMar):
        Mar(mar)
