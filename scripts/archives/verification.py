"""Check an archive before a server runs the code in it, and unpack it as it was checked."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hf_serve.handlers.checkpoints.archive_signature import (
    PUBLIC_KEY,
    SIGNATURE,
    SUMS,
    DamagedArchive,
    UntrustedArchive,
    check_sums,
    digests,
    read_sums,
    unlisted,
    verify_signature,
)
from hf_serve.handlers.config.documents import parse_json
from hf_serve.hosts.mar_reader import CHUNK, MAX_READ, Mar, WrongMar
from hf_serve.scripts.archives.manifest import MANIFEST_FILE
from hf_serve.scripts.archives.model_store import split

TARS = (".tar.gz", ".tgz")
# What is read of an archive to check the others.
READ = (SUMS, SIGNATURE, MANIFEST_FILE)


def verify_archive(path: Path, public_key: Path | None = None) -> bool:
    """Check the sums of an archive and, given a key, its signature; return whether it has sums.

    Unlike a worker, which may find files that TorchServe has added, it refuses files without a sum,
    links, and a .mar that can be read in two ways.

    Raises:
        DamagedArchive: a file is missing, was changed, or has no sum.
        UntrustedArchive: the signature is missing or wrong, or the archive is a .tar.gz.
        UnreadableKey: there is no key in the file.
    """
    if path.name.endswith(TARS) and not public_key:
        return False
    return _checked(_found(path), public_key)


def signed_digest(path: Path, public_key: Path) -> str:
    """Check the signature of an archive, and return the SHA-256 of the .mar that was checked.

    Processes that this one starts check the signature, too.

    Raises:
        DamagedArchive: a file is missing, was changed, or has no sum.
        UntrustedArchive: the signature is missing or wrong, or the archive is no .mar.
        UnreadableKey: there is no key in the file.
    """
    if path.is_dir():
        raise UntrustedArchive(f"{path.name} is a folder, which can change; name a .mar")
    found = _found(path)
    _checked(found, public_key)
    _pass_on(public_key)
    return found.sha256


def unpack_signed(path: Path, folder: Path, public_key: Path) -> Path:
    """Unpack an archive that is signed to a new folder, and return the folder.

    What was written is checked, not what is in the store, which others may write to: serve the
    folder. Processes that this one starts check the signature, too.

    Raises:
        DamagedArchive: a file is missing, was changed, or has no sum.
        UntrustedArchive: the signature is missing or wrong, the archive is a .tar.gz, or its file
            has not the name of the model and version in it.
        UnreadableKey: there is no key in the file.
    """
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        found = _found(path, folder)
        _checked(found, public_key)
        _check_name(path, found.read.get(MANIFEST_FILE, b"{}"))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    _pass_on(public_key)
    return folder


@dataclass(frozen=True)
class _Found:
    """What is in an archive.

    Attributes:
        digests: the SHA-256 of each file; "" of what is no file, such as a link.
        read: the content of the sums, the signature and the manifest, where they are there.
        sha256: the digest of a .mar; "" of a folder.
    """

    digests: Mapping[str, str]
    read: Mapping[str, bytes]
    sha256: str = ""


def _found(path: Path, target: Path | None = None) -> _Found:
    """Read an archive, and write its files to a folder if one is given."""
    if path.name.endswith(TARS):
        raise UntrustedArchive(f"{path.name} is no .mar, whose signature could be checked")
    if path.is_dir():
        return _found_in_folder(path, target)
    try:
        with Mar(path) as mar:
            if target is not None:
                return _Found(mar.unpack(target), _contents(target), mar.sha256)
            found = mar.digests()
            read = {name: mar.read(name) for name in READ if name in found}
            return _Found(found, read, mar.sha256)
    except FileNotFoundError:
        raise UntrustedArchive(f"there is no {path}") from None
    except WrongMar as error:
        raise DamagedArchive(str(error)) from None


def _found_in_folder(folder: Path, target: Path | None) -> _Found:
    strange = dict.fromkeys(_strange(folder), "")
    files = {
        path.relative_to(folder).as_posix(): path
        for path in _tree(folder)
        if stat.S_ISREG(path.lstat().st_mode)
    }
    if target is None:
        return _Found(digests(files) | strange, _contents(folder))
    return _Found(_copied(files, target) | strange, _contents(target))


def _tree(folder: Path) -> Iterator[Path]:
    """Yield what is in a folder and in those inside; links are not followed."""
    for path in sorted(folder.iterdir()):
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _tree(path)


def _strange(folder: Path) -> Iterator[str]:
    """Yield what is neither a file nor a folder of files."""
    for path in _tree(folder):
        mode = path.lstat().st_mode
        if not stat.S_ISREG(mode) and not (stat.S_ISDIR(mode) and any(path.iterdir())):
            yield path.relative_to(folder).as_posix()


def _copied(files: Mapping[str, Path], target: Path) -> dict[str, str]:
    """Copy files, and return the digests of what was written."""
    found = {}
    for place, file in files.items():
        copy, digest = target / place, hashlib.sha256()
        copy.parent.mkdir(parents=True, exist_ok=True)
        with file.open("rb") as source, copy.open("xb") as written:
            while chunk := source.read(CHUNK):
                digest.update(chunk)
                written.write(chunk)
        found[place] = digest.hexdigest()
    return found


def _contents(folder: Path) -> dict[str, bytes]:
    files = {name: folder / name for name in READ if (folder / name).is_file()}
    if large := [name for name, file in files.items() if file.stat().st_size > MAX_READ]:
        raise DamagedArchive(f"{large[0]} has more than {MAX_READ} bytes")
    return {name: file.read_bytes() for name, file in files.items()}


def _checked(found: _Found, public_key: Path | None) -> bool:
    """Check what is in an archive, and return whether it has sums."""
    sums, signature = found.read.get(SUMS), found.read.get(SIGNATURE)
    if public_key:
        verify_signature(sums, signature, public_key)
    if sums is None:
        return False
    listed = read_sums(sums)
    if strange := unlisted(found.digests, listed):
        raise DamagedArchive(f"{strange[0]} has no sum in {SUMS}")
    check_sums(listed, found.digests)
    read = digests(found.read)
    if changed := [name for name in read if read[name] != found.digests.get(name)]:
        raise DamagedArchive(f"{changed[0]} changes while it is read")
    return True


def _check_name(path: Path, manifest: bytes) -> None:
    """Check that a file in the store has the name, and the version if any, that are signed."""
    model = parse_json(manifest).get("model", {})
    signed = str(model.get("modelName")), str(model.get("modelVersion"))
    name, version = split(path.name.removesuffix(".mar"))
    if (name, version or signed[1]) != signed:
        raise UntrustedArchive(
            f"{path.name} is signed as {signed[0]} {signed[1]}; give it the name of that model"
        )


def _pass_on(public_key: Path) -> None:
    os.environ[PUBLIC_KEY] = str(public_key.resolve())


@dataclass(frozen=True)
class SignedStore:
    """A folder of the server's own, in which TorchServe finds nothing that is not signed.

    It is the model store that the settings of TorchServe name, so it holds for every way in: the
    start, and what the management API registers.

    Attributes:
        folder: the folder, which only the user of the server may write to.
        source: the folder of archives, which others may write to.
        public_key: the key that archives must be signed with.
    """

    folder: Path
    source: Path
    public_key: Path

    def add(self, file: str) -> str:
        """Check an archive of the source, unpack it, and return its name in this store.

        Raises:
            DamagedArchive: a file is missing, was changed, or has no sum.
            UntrustedArchive: the signature is missing, is wrong, or belongs to another model.
            UnreadableKey: there is no key in the file.
        """
        name = file.removesuffix(".mar")
        self.remove(name)
        unpack_signed(self.source / file, self.folder / name, self.public_key)
        return name

    def remove(self, name: str) -> None:
        """Remove an unpacked archive that is not served any more."""
        shutil.rmtree(self.folder / name, ignore_errors=True)
