"""What the commands of Ray and KServe share: which archives they serve."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hf_serve.handlers.checkpoints.archive_signature import PUBLIC_KEY, UntrustedArchive
from hf_serve.handlers.errors import KitError
from hf_serve.scripts.archives.packing import pack
from hf_serve.scripts.archives.verification import verify_archive
from hf_serve.scripts.serving.host_commands import find_archives, unpack_all
from tests.sentences import refused


@pytest.fixture
def signed(config_path: Path, keys: Path, tmp_path: Path) -> Path:
    """An archive in a store of its own."""
    store = tmp_path / "store"
    return pack(config_path, export_path=store, signing_key=keys / "own.pem", checked=False).path


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of the command, without a key."""
    monkeypatch.setattr(os, "environ", {**os.environ})
    os.environ.pop(PUBLIC_KEY, None)


def test_processes_that_load_archives_check_the_key_of_the_command(
    signed: Path, keys: Path, tmp_path: Path
) -> None:
    assert find_archives(signed.parent, None, None, tmp_path) == [signed]
    assert PUBLIC_KEY not in os.environ
    find_archives(signed.parent, None, keys / "own.pub", tmp_path)
    assert os.environ[PUBLIC_KEY] == str(keys / "own.pub")


def test_what_is_served_is_what_was_verified(signed: Path, keys: Path, tmp_path: Path) -> None:
    """Whoever writes to the store afterwards changes nothing."""
    (served,) = find_archives(signed.parent, None, keys / "own.pub", tmp_path)
    signed.write_bytes(b"")
    assert served.is_relative_to(tmp_path) and verify_archive(served, keys / "own.pub")
    assert served.parents[1].stat().st_mode & 0o077 == 0


def test_archives_without_the_signature_of_the_key_are_not_served(
    signed: Path, keys: Path, tmp_path: Path
) -> None:
    with refused(UntrustedArchive, "other.pub"):
        find_archives(signed.parent, None, keys / "other.pub", tmp_path)
    assert PUBLIC_KEY not in os.environ
    assert not list(tmp_path.rglob("model-config.yaml"))


def test_an_archive_that_is_not_there_is_not_trusted(tmp_path: Path, keys: Path) -> None:
    with refused(UntrustedArchive, "missing.mar"):
        unpack_all([tmp_path / "missing.mar"], keys / "own.pub", tmp_path)


def test_a_model_without_an_archive_is_named(signed: Path, tmp_path: Path) -> None:
    with refused(KitError, "other"):
        find_archives(signed.parent, ["other"], None, tmp_path)
