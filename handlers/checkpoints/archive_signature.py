"""The SHA-256 sums of the files of an archive, and the Ed25519 signature of these sums.

The sums have the format of `sha256sum --check`. An archive that was packed without them is loaded,
unless the server names the public key that its archives are signed with.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import os
import re
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from ..errors import ConfigError, summarize

SUMS = "MAR-INF/SHA256SUMS"
SIGNATURE = "MAR-INF/SHA256SUMS.sig"
# Variables of the environment of the server: an archive does not say how it is checked.
SWITCH, PUBLIC_KEY = "ARCHIVE_CHECKSUMS", "ARCHIVE_PUBLIC_KEY"
# A folder of this user with the sums of large files, so that a file that has not changed is hashed
# once by all processes of a server.
KNOWN_SUMS = "KNOWN_CHECKSUMS"
DIGEST = re.compile(r"[0-9a-f]{64}")
LINE = re.compile(rf"(?P<digest>{DIGEST.pattern})  (?P<path>[^\n]+)")
INSTALL = "install it with pip install 'transformers-on-torchserve[signatures]'"
Source = Path | bytes
# Large files are hashed in several threads: hashlib releases the lock of Python.
THREADS = 4
LARGE_BYTES = 1 << 20
# A file that was changed less long ago may change again without another time of its change.
SETTLED_NANOSECONDS = 2 * 10**9


class DamagedArchive(ConfigError):
    """The files of an archive are not those that were packed."""

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"The archive is damaged or was changed: {problem}; pack it again, or copy it again."
        )


class UntrustedArchive(ConfigError):
    """The signature of an archive is missing, or another key made it."""

    def __init__(self, problem: str) -> None:
        super().__init__(
            f"The archive is not trusted: {problem}; {PUBLIC_KEY} names the key that archives of"
            " this server must be signed with."
        )


class UnreadableKey(ConfigError):
    """A file has no key for signatures."""

    def __init__(self, path: Path, kind: str, reason: str) -> None:
        super().__init__(
            f"{path} is no Ed25519 {kind} key in a PEM file without a password ({reason}); make one"
            " with openssl genpkey -algorithm ed25519."
        )


def sums_of(files: Mapping[str, Source]) -> bytes:
    """Return the sums of files by their path in the archive, as `sha256sum` writes them."""
    return "".join(f"{digest}  {path}\n" for path, digest in digests(files).items()).encode()


def digests(files: Mapping[str, Source], known: Path | None = None) -> dict[str, str]:
    """Return the SHA-256 of each file.

    Args:
        known: a folder of the sums of large files; see :func:`_known_digest`.
    """
    large = [path for path, source in files.items() if _size(source) >= LARGE_BYTES]
    hash_large = partial(_known_digest, known) if known else _digest
    with ThreadPoolExecutor(THREADS) as threads:
        of_large = threads.map(hash_large, [files[path] for path in large])
        found = {path: _digest(each) for path, each in files.items() if path not in large}
        found |= zip(large, of_large, strict=True)
    return {path: found[path] for path in files}


def verify(folder: Path, environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Check the files of an unpacked archive, as the environment of the server says.

    The sums of a signed archive are always checked: without them its signature says nothing.

    Returns:
        The verified sum of each file; nothing where the sums were not checked.

    Raises:
        DamagedArchive: a file is missing or has another sum.
        UntrustedArchive: the signature is missing or wrong.
        WrongConfig: the package that checks signatures is missing.
    """
    # Read once: what is signed is what is compared.
    sums, key = _read(folder / SUMS), environment.get(PUBLIC_KEY)
    if key:
        verify_signature(sums, _read(folder / SIGNATURE), Path(key))
    if (key or environment.get(SWITCH, "on") != "off") and sums is not None:
        listed = read_sums(sums)
        files = {path: folder / path for path in listed}
        known = environment.get(KNOWN_SUMS)
        present = {path: each for path, each in files.items() if each.is_file()}
        check_sums(listed, digests(present, Path(known) if known else None))
        return listed
    return {}


def check_sums(listed: Mapping[str, str], found: Mapping[str, str]) -> None:
    """Check that the files of an archive have the sums that are listed.

    Raises:
        DamagedArchive: one is missing or has another.
    """
    if missing := [path for path in listed if path not in found]:
        raise DamagedArchive(f"{missing[0]} is missing")
    if changed := [path for path in listed if listed[path] != found[path]]:
        raise DamagedArchive(f"{changed[0]} has another SHA-256 sum than {SUMS} says")


def read_sums(content: bytes) -> dict[str, str]:
    """Return the sum of each path.

    Raises:
        DamagedArchive: a line has another format, or a path leads out of the archive.
    """
    found: dict[str, str] = {}
    # Not splitlines(), which also splits at other line separators inside a name.
    lines = content.decode("utf-8", "replace").removesuffix("\n").split("\n")
    for line in lines if content else ():
        match = LINE.fullmatch(line)
        if not match or not _is_inside(match["path"]):
            raise DamagedArchive(f"{SUMS} has a line that is not the sum of one of its files")
        found[match["path"]] = match["digest"]
    return found


def sign(sums: bytes, private_key: Path) -> bytes:
    """Return the signature of sums, in base64.

    Raises:
        UnreadableKey: there is no Ed25519 key without a password in the file.
        WrongConfig: the package that signs is missing.
    """
    return base64.b64encode(_load(private_key, "private").sign(sums)) + b"\n"


def verify_signature(sums: bytes | None, signature: bytes | None, public_key: Path) -> None:
    """Check a signature of sums.

    Raises:
        UntrustedArchive: it is missing or wrong.
        UnreadableKey: there is no Ed25519 key in the file.
        WrongConfig: the package that checks signatures is missing.
    """
    if sums is None or signature is None:
        raise UntrustedArchive("it has no signature")
    key, exceptions = _load(public_key, "public"), _require("cryptography.exceptions")
    try:
        key.verify(base64.b64decode(signature), sums)
    except (exceptions.InvalidSignature, binascii.Error):
        raise UntrustedArchive(f"its signature is not that of {public_key}") from None


def _load(path: Path, kind: str) -> Any:
    """Return the Ed25519 key of a PEM file."""
    package = "cryptography.hazmat.primitives"
    serialization = _require(f"{package}.serialization")
    ed25519 = _require(f"{package}.asymmetric.ed25519")
    options = {"password": None} if kind == "private" else {}
    try:
        key = getattr(serialization, f"load_pem_{kind}_key")(path.read_bytes(), **options)
    except (OSError, ValueError, TypeError) as error:
        raise UnreadableKey(path, kind, summarize(error)) from None
    if not isinstance(key, getattr(ed25519, f"Ed25519{kind.capitalize()}Key")):
        raise UnreadableKey(path, kind, f"it is a {type(key).__name__}")
    return key


def _require(module: str) -> Any:
    # Imported here because it imports transformers, which packing does not need.
    from ..process.packages import require_package  # noqa: PLC0415

    return require_package(module, "the signature of the archive", INSTALL)


def _size(source: Source) -> int:
    return len(source) if isinstance(source, bytes) else source.stat().st_size


def _known_digest(folder: Path, source: Source) -> str:
    """Return the SHA-256 of a file, which is read if it has changed since it was read last.

    Its device, number, size, and times of change are the name of a file in `folder` with its sum.
    A program can set one of the times, and only the kernel the other.
    """
    if isinstance(source, bytes):
        return _digest(source)
    before = _identity(source)
    record = folder / before
    with suppress(OSError, UnicodeDecodeError):
        # A record that was cut off says nothing.
        if DIGEST.fullmatch(known := record.read_text("ascii")):
            return known
    digest, changed = _digest(source), source.stat().st_ctime_ns
    if _identity(source) == before and time.time_ns() - changed > SETTLED_NANOSECONDS:
        draft = folder / f".{before}.{os.getpid()}"
        with suppress(OSError):
            draft.write_text(digest, "ascii")
            draft.replace(record)
    return digest


def _identity(path: Path) -> str:
    """Return the name of a file as long as it stays the same."""
    found = path.stat()
    numbers = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    return "-".join(map(str, numbers))


def _digest(source: Source) -> str:
    opened: Any = io.BytesIO(source) if isinstance(source, bytes) else source.open("rb")
    with opened as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _read(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _is_inside(path: str) -> bool:
    place = PurePosixPath(path)
    return not place.is_absolute() and ".." not in place.parts


def unlisted(paths: Iterable[str], listed: Iterable[str]) -> list[str]:
    """Return the paths of an archive that have no sum, the sums and the signature left out."""
    return sorted(set(paths) - set(listed) - {SUMS, SIGNATURE})
