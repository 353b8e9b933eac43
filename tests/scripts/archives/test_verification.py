"""Archives are checked before their code runs; `test_mar_reader.py` has changed .mar files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hf_serve.handlers.checkpoints.archive_signature import (
    PUBLIC_KEY,
    SUMS,
    DamagedArchive,
    UntrustedArchive,
)
from hf_serve.hosts.mar_reader import MAX_READ
from hf_serve.scripts.archives.verification import signed_digest, unpack_signed, verify_archive
from tests.sentences import refused
from tests.standins.archives import ECHO, write_archive


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of the command, which gets the key."""
    monkeypatch.setenv(PUBLIC_KEY, "")


@pytest.fixture
def folder(tmp_path: Path, keys: Path) -> Path:
    """A signed archive as a folder."""
    mar = write_archive(tmp_path, "qa", ECHO, key=keys / "own.pem")
    return unpack_signed(mar, tmp_path / "store" / "qa", keys / "own.pub")


def link(folder: Path) -> None:
    outside = folder.parents[1] / "outside"
    outside.mkdir()
    (outside / "__init__.py").touch()
    (folder / "yaml").symlink_to(outside)


def replace(folder: Path) -> None:
    """Replace a file by a link to what was signed."""
    path = folder / "model-config.yaml"
    path.rename(folder.parents[1] / "elsewhere")
    path.symlink_to(folder.parents[1] / "elsewhere")


CHANGES: dict[str, Callable[[Path], object]] = {
    "link to a folder": link,
    "link to a file": lambda folder: (folder / "x.py").symlink_to("/etc/hostname"),
    "link to nothing": lambda folder: (folder / "x.py").symlink_to("nowhere"),
    "file replaced by a link": replace,
    "file": lambda folder: (folder / "yaml.py").touch(),
    "hidden file": lambda folder: (folder / ".x").touch(),
    "compiled file": lambda folder: (folder / "transformers_handler.pyc").touch(),
    "empty folder": lambda folder: (folder / "yaml").mkdir(),
    "pipe": lambda folder: os.mkfifo(folder / "x.py"),
    "changed file": lambda folder: (folder / "model-config.yaml").write_text("minWorkers: 2"),
    "file removed": lambda folder: (folder / "model-config.yaml").unlink(),
}


@pytest.mark.parametrize("name", CHANGES)
def test_no_folder_is_verified_that_is_not_what_was_signed(
    name: str, folder: Path, keys: Path, tmp_path: Path
) -> None:
    CHANGES[name](folder)
    with pytest.raises(DamagedArchive):
        verify_archive(folder, keys / "own.pub")
    with pytest.raises(DamagedArchive):
        unpack_signed(folder, tmp_path / "served", keys / "own.pub")
    assert not (tmp_path / "served").exists()


def test_a_list_of_sums_that_is_too_large_is_not_read(folder: Path, keys: Path) -> None:
    os.truncate(folder / SUMS, MAX_READ + 1)
    with refused(DamagedArchive, SUMS, MAX_READ):
        verify_archive(folder, keys / "own.pub")


def test_a_folder_as_it_was_signed_is_copied(folder: Path, keys: Path, tmp_path: Path) -> None:
    served = unpack_signed(folder, tmp_path / "served" / "qa", keys / "own.pub")
    assert verify_archive(served, keys / "own.pub")
    assert not (served / "model-config.yaml").samefile(folder / "model-config.yaml")
    assert os.environ[PUBLIC_KEY] == str(keys / "own.pub")


@pytest.mark.parametrize("name", ["other.mar", "qa@2.0.mar", "other@1.0.mar"])
def test_a_name_that_is_not_signed_is_refused(name: str, keys: Path, tmp_path: Path) -> None:
    """An archive of another model or version does not take the place of the right one."""
    mar = write_archive(tmp_path, "qa@1.0", ECHO, key=keys / "own.pem")
    unpack_signed(mar, tmp_path / "served" / "1", keys / "own.pub")
    unpack_signed(mar.rename(tmp_path / "qa.mar"), tmp_path / "served" / "2", keys / "own.pub")
    renamed = (tmp_path / "qa.mar").rename(tmp_path / name)
    with refused(UntrustedArchive, name, "qa 1.0"):
        unpack_signed(renamed, tmp_path / "served" / "3", keys / "own.pub")


def test_what_cannot_be_pinned_has_no_digest(folder: Path, keys: Path) -> None:
    with refused(UntrustedArchive, "qa"):
        signed_digest(folder, keys / "own.pub")
    with refused(UntrustedArchive, "qa.tar.gz"):
        signed_digest(folder.with_name("qa.tar.gz"), keys / "own.pub")
