from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hf_serve.handlers.checkpoints import archive_signature
from hf_serve.handlers.checkpoints.archive_signature import (
    KNOWN_SUMS,
    LARGE_BYTES,
    PUBLIC_KEY,
    SIGNATURE,
    SUMS,
    SWITCH,
    DamagedArchive,
    UnreadableKey,
    UntrustedArchive,
    sign,
    sums_of,
    verify,
)
from hf_serve.handlers.errors import ConfigError
from tests.sentences import refused


@pytest.fixture
def archive(tmp_path: Path, keys: Path) -> Path:
    """An unpacked archive with sums and a signature."""
    files = {"config.json": b"{}", "handlers/engine.py": b"code"}
    (tmp_path / "handlers").mkdir()
    (tmp_path / "MAR-INF").mkdir()
    for path, content in files.items():
        (tmp_path / path).write_bytes(content)
    (tmp_path / SUMS).write_bytes(sums_of(files))
    (tmp_path / SIGNATURE).write_bytes(sign(sums_of(files), keys / "own.pem"))
    return tmp_path


def test_an_archive_that_was_not_changed_is_verified(archive: Path, keys: Path) -> None:
    paths = {"config.json", "handlers/engine.py"}
    assert verify(archive, {}).keys() == paths
    assert verify(archive, {PUBLIC_KEY: str(keys / "own.pub")}).keys() == paths
    assert verify(archive, {SWITCH: "off"}) == {}


@pytest.fixture
def large(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """An archive with a large file that was not changed lately, and the variables of a server."""
    weights = archive / "model.safetensors"
    weights.write_bytes(bytes(LARGE_BYTES))
    (archive / SUMS).write_bytes(sums_of({weights.name: weights}))
    return archive, {KNOWN_SUMS: str(tmp_path_factory.mktemp("known"))}


def digested(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list that gets each file that is hashed from now on."""
    found: list[Any] = []
    digest = archive_signature._digest

    def noted(source: Any) -> str:
        found.append(source)
        return digest(source)

    monkeypatch.setattr(archive_signature, "_digest", noted)
    return found


def test_a_large_file_that_has_not_changed_is_hashed_once(
    large: tuple[Path, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, server = large
    monkeypatch.setattr(archive_signature, "SETTLED_NANOSECONDS", 0)
    hashed = digested(monkeypatch)
    assert verify(archive, server) == verify(archive, server)
    assert len(hashed) == 1
    os.link(archive / "model.safetensors", archive / "model-2.safetensors")  # Changes its status.
    verify(archive, server)
    assert len(hashed) == 2


def test_a_large_file_that_has_changed_is_hashed_again_also_with_its_former_time(
    large: tuple[Path, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, server = large
    monkeypatch.setattr(archive_signature, "SETTLED_NANOSECONDS", 0)
    verify(archive, server)
    weights = archive / "model.safetensors"
    before = weights.stat()
    with weights.open("r+b") as file:
        file.write(b"x")
    os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
    with refused(DamagedArchive, "model.safetensors"):
        verify(archive, server)


@pytest.mark.parametrize("content", [b"", b"0123", b"\xff"])
def test_a_record_of_a_sum_that_is_damaged_is_made_again(
    large: tuple[Path, dict[str, str]], monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    """A machine that lost its power may keep the name of a file without its content."""
    archive, server = large
    monkeypatch.setattr(archive_signature, "SETTLED_NANOSECONDS", 0)
    found = verify(archive, server)
    (record,) = Path(server[KNOWN_SUMS]).iterdir()
    record.write_bytes(content)
    assert verify(archive, server) == found
    assert record.read_text() == found["model.safetensors"]


def test_sums_are_read_once(archive: Path, keys: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums that are exchanged after their signature was checked are not those that count."""
    check = archive_signature.verify_signature

    def exchange(*arguments: Any) -> None:
        check(*arguments)
        (archive / "config.json").write_bytes(b"[]")
        (archive / SUMS).write_bytes(sums_of({"config.json": b"[]"}))

    monkeypatch.setattr(archive_signature, "verify_signature", exchange)
    with refused(DamagedArchive, "config.json"):
        verify(archive, {PUBLIC_KEY: str(keys / "own.pub")})


def test_a_large_file_that_has_just_changed_is_hashed_each_time(
    large: tuple[Path, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, server = large
    monkeypatch.setattr(archive_signature, "SETTLED_NANOSECONDS", 10**15)
    hashed = digested(monkeypatch)
    verify(archive, server)
    verify(archive, server)
    assert len(hashed) == 2


def test_sums_are_verified_where_none_can_be_kept(large: tuple[Path, dict[str, str]]) -> None:
    archive, _ = large
    assert verify(archive, {KNOWN_SUMS: "/nowhere"})


def test_sha256sum_reads_the_sums(archive: Path) -> None:
    subprocess.run(["sha256sum", "--check", "--strict", SUMS], cwd=archive, check=True)


@pytest.mark.parametrize("content", [b"{} ", None])
def test_a_file_that_was_changed_or_removed_is_named(archive: Path, content: bytes | None) -> None:
    (archive / "config.json").unlink()
    if content:
        (archive / "config.json").write_bytes(content)
    with refused(DamagedArchive, "config.json"):
        verify(archive, {})
    verify(archive, {SWITCH: "off"})


def test_sums_without_their_format_are_refused(archive: Path) -> None:
    for line in ("x", f"{'0' * 64}  ../secret", f"{'0' * 64}  /etc/passwd"):
        (archive / SUMS).write_text(line)
        with refused(DamagedArchive):
            verify(archive, {})


def test_an_archive_with_another_signature_is_not_trusted(archive: Path, keys: Path) -> None:
    with refused(UntrustedArchive, "other.pub"):
        verify(archive, {PUBLIC_KEY: str(keys / "other.pub")})
    (archive / SIGNATURE).write_text("not base64")
    with refused(UntrustedArchive):
        verify(archive, {PUBLIC_KEY: str(keys / "own.pub")})


def test_sums_that_were_changed_with_a_file_are_not_trusted(archive: Path, keys: Path) -> None:
    (archive / "config.json").write_bytes(b"[]")
    (archive / SUMS).write_bytes(sums_of({"config.json": b"[]", "handlers/engine.py": b"code"}))
    verify(archive, {})
    with pytest.raises(UntrustedArchive):
        verify(archive, {PUBLIC_KEY: str(keys / "own.pub")})


def test_the_files_of_a_signed_archive_are_checked_whatever_the_switch_says(
    archive: Path, keys: Path
) -> None:
    environment = {PUBLIC_KEY: str(keys / "own.pub"), SWITCH: "off"}
    assert verify(archive, environment)
    (archive / "config.json").write_bytes(b"[]")
    with refused(DamagedArchive, "config.json"):
        verify(archive, environment)


def test_without_a_signature_an_archive_is_trusted_only_without_a_key(
    archive: Path, keys: Path
) -> None:
    (archive / SIGNATURE).unlink()
    verify(archive, {})
    with refused(UntrustedArchive):
        verify(archive, {PUBLIC_KEY: str(keys / "own.pub"), SWITCH: "off"})
    (archive / SUMS).unlink()
    verify(archive, {})
    with refused(UntrustedArchive):
        verify(archive, {PUBLIC_KEY: str(keys / "own.pub")})


def test_a_file_that_is_no_key_is_named(archive: Path, keys: Path, tmp_path: Path) -> None:
    wrong: list[Path] = [tmp_path / "config.json", tmp_path / "nowhere", keys / "own.pem"]
    for path in wrong:
        with refused(UnreadableKey, path.name):
            verify(archive, {PUBLIC_KEY: str(path)})
    for path in (*wrong[:2], keys / "own.pub"):
        with refused(UnreadableKey, path.name):
            sign(b"", path)


def test_the_errors_stop_a_load() -> None:
    assert all(issubclass(each, ConfigError) for each in (DamagedArchive, UntrustedArchive))
