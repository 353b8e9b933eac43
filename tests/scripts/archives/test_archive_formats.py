from __future__ import annotations

import os
import tarfile
import zipfile
from pathlib import Path

import pytest

from hf_serve.scripts.archives.archive_formats import ARCHIVE_FORMATS, FormatName, is_current_mar

DATA_DESCRIPTOR = 0x08


@pytest.fixture
def parts(tmp_path: Path) -> dict[str, Path | bytes]:
    weights = tmp_path / "weights"
    weights.write_bytes(bytes(range(256)) * 100)
    return {"MAR-INF/MANIFEST.json": b"{}", "deep/model.safetensors": weights}


def write(archive_format: FormatName, path: Path, parts: dict[str, Path | bytes]) -> Path:
    ARCHIVE_FORMATS[archive_format].write(path, "qa", parts, lambda _: None)
    return path


@pytest.mark.parametrize("archive_format", ARCHIVE_FORMATS)
def test_unpacked_files_equal_the_written_files(
    archive_format: FormatName, tmp_path: Path, parts: dict[str, Path | bytes]
) -> None:
    path = write(archive_format, tmp_path / f"qa{ARCHIVE_FORMATS[archive_format].suffix}", parts)

    folder = ARCHIVE_FORMATS[archive_format].unpack(path, tmp_path / "unpacked")

    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert files == set(parts)
    assert (folder / "deep/model.safetensors").read_bytes() == (tmp_path / "weights").read_bytes()


@pytest.mark.parametrize("archive_format", ["mar", "tgz"])
def test_archives_are_reproducible(
    archive_format: FormatName, tmp_path: Path, parts: dict[str, Path | bytes]
) -> None:
    first = write(archive_format, tmp_path / "first", parts).read_bytes()
    (tmp_path / "weights").chmod(0o600)
    os.utime(tmp_path / "weights", (1, 1))

    assert write(archive_format, tmp_path / "second", parts).read_bytes() == first


def test_mar_entries_are_stored_without_data_descriptors(
    tmp_path: Path, parts: dict[str, Path | bytes]
) -> None:
    with zipfile.ZipFile(write("mar", tmp_path / "qa.mar", parts)) as archive:
        entries = archive.infolist()

    assert {entry.compress_type for entry in entries} == {zipfile.ZIP_STORED}
    assert not any(entry.flag_bits & DATA_DESCRIPTOR for entry in entries)


def test_a_tgz_contains_a_folder_with_the_model_name(
    tmp_path: Path, parts: dict[str, Path | bytes]
) -> None:
    with tarfile.open(write("tgz", tmp_path / "qa.tar.gz", parts)) as archive:
        assert archive.getnames() == [f"qa/{place}" for place in parts]


def test_source_date_epoch_sets_the_file_times(
    tmp_path: Path, parts: dict[str, Path | bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")

    with zipfile.ZipFile(write("mar", tmp_path / "qa.mar", parts)) as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(2023, 11, 14, 22, 13, 20)}
    with tarfile.open(write("tgz", tmp_path / "qa.tar.gz", parts)) as packed:
        assert {entry.mtime for entry in packed} == {1_700_000_000}


@pytest.mark.parametrize(("second", "is_current"), [("20", True), ("21", True), ("22", False)])
def test_a_mar_with_other_file_times_is_outdated(
    tmp_path: Path,
    parts: dict[str, Path | bytes],
    monkeypatch: pytest.MonkeyPatch,
    second: str,
    is_current: bool,
) -> None:
    # ZIP files have even seconds.
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000020")
    path = write("mar", tmp_path / "qa.mar", parts)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", f"17000000{second}")
    assert is_current_mar(path, parts) == is_current


@pytest.mark.parametrize("archive_format", ARCHIVE_FORMATS)
def test_progress_adds_up_to_the_total_size(
    archive_format: FormatName, tmp_path: Path, parts: dict[str, Path | bytes]
) -> None:
    counts: list[int] = []

    ARCHIVE_FORMATS[archive_format].write(tmp_path / "out", "qa", parts, counts.append)

    assert sum(counts) == 25600 + 2


def test_a_mar_is_outdated_if_content_names_or_compression_change(
    tmp_path: Path, parts: dict[str, Path | bytes]
) -> None:
    path = write("mar", tmp_path / "qa.mar", parts)
    other_bytes = {**parts, "MAR-INF/MANIFEST.json": b"[]"}
    other_names = {"a": parts["MAR-INF/MANIFEST.json"], "b": parts["deep/model.safetensors"]}

    assert is_current_mar(path, parts)
    assert not is_current_mar(path, other_bytes)
    assert not is_current_mar(path, other_names)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("MAR-INF/MANIFEST.json", b"{}")
    assert not is_current_mar(path, {"MAR-INF/MANIFEST.json": b"{}"})
