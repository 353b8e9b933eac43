from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from hf_serve.scripts.archives.archive_formats import ARCHIVE_FORMATS
from hf_serve.scripts.archives.model_store import (
    ArchiveNotFound,
    list_archives,
    read_file,
    write_default,
)
from tests.sentences import refused


@pytest.fixture
def store(tmp_path: Path) -> Path:
    for file in ("qa.mar", "qa.tar.gz", "ner.tar.gz", ".half.mar", "notes.txt"):
        (tmp_path / file).touch()
    for folder in ("gpt.2", "qa", ".qa-x1"):
        (tmp_path / folder / "MAR-INF").mkdir(parents=True)
        (tmp_path / folder / "MAR-INF" / "MANIFEST.json").touch()
    (tmp_path / "no-model").mkdir()
    return tmp_path


def test_archives_are_listed_by_their_file_name(store: Path) -> None:
    assert list_archives(store) == {"gpt.2": "gpt.2", "ner": "ner.tar.gz", "qa": "qa.mar"}


def test_archives_can_be_selected_by_name(store: Path) -> None:
    assert list_archives(store, ["ner"]) == {"ner": "ner.tar.gz"}


def test_a_missing_archive_is_an_error(store: Path) -> None:
    with refused(ArchiveNotFound, "x", "scripts/create_archive.py"):
        list_archives(store, ["qa", "x"])


def test_an_empty_store_is_an_error(tmp_path: Path) -> None:
    with refused(ArchiveNotFound, "scripts/create_archive.py"):
        list_archives(tmp_path / "nowhere")


def test_of_several_versions_the_newest_is_listed_and_one_without_a_version_is_the_oldest(
    tmp_path: Path,
) -> None:
    for file in ("qa.mar", "qa@1.9.mar", "qa@1.10.mar", "ner@2.0.mar"):
        (tmp_path / file).touch()
    assert list_archives(tmp_path) == {"ner": "ner@2.0.mar", "qa": "qa@1.10.mar"}


def test_a_file_without_a_version_in_its_name_has_the_version_of_its_manifest(
    tmp_path: Path,
) -> None:
    manifest = json.dumps({"model": {"modelName": "qa", "handler": "a", "modelVersion": "1.0"}})
    with zipfile.ZipFile(tmp_path / "qa.mar", "w") as archive:
        archive.writestr("MAR-INF/MANIFEST.json", manifest)
    (tmp_path / "qa@2.0.mar").touch()
    assert list_archives(tmp_path) == {"qa": "qa@2.0.mar"}
    write_default(tmp_path, "qa", "1.0")
    assert list_archives(tmp_path) == {"qa": "qa.mar"}
    write_default(tmp_path, "qa", "1.5")
    assert list_archives(tmp_path) == {"qa": "qa@2.0.mar"}
    (tmp_path / "qa.mar").write_bytes(b"no archive")
    assert list_archives(tmp_path) == {"qa": "qa@2.0.mar"}


def test_the_version_that_a_rollout_has_set_is_listed(tmp_path: Path) -> None:
    for file in ("qa@1.9.mar", "qa@1.10.mar"):
        (tmp_path / file).touch()
    write_default(tmp_path, "qa", "1.9")
    assert list_archives(tmp_path) == {"qa": "qa@1.9.mar"}
    (tmp_path / "qa@1.9.mar").unlink()
    assert list_archives(tmp_path) == {"qa": "qa@1.10.mar"}


def test_a_file_of_a_tar_file_is_the_one_that_is_unpacked(tmp_path: Path) -> None:
    """The draft model of a model has files of the same names, which come first."""
    path = tmp_path / "qa.tar.gz"
    parts: dict[str, Path | bytes] = {"assistant_model/config.json": b"1", "config.json": b"2"}
    ARCHIVE_FORMATS["tgz"].write(path, "qa", parts, lambda _: None)
    assert read_file(path, "config.json") == b"2"
    assert read_file(path, "assistant_model/config.json") == b"1"
    with pytest.raises(KeyError):
        read_file(path, "json")
