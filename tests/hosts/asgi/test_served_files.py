"""Files of a folder count once they are complete, and changes are seen once."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from hf_serve.hosts.archives import FOLDER_VARIABLE, MANIFEST, ArchiveError
from hf_serve.hosts.asgi import served_files
from hf_serve.hosts.asgi.served_files import Changes, ServedFiles
from tests.sentences import refused

NONE = Changes()


@pytest.fixture
def files(tmp_path: Path) -> ServedFiles:
    (tmp_path / "first.mar").touch()
    return ServedFiles([tmp_path])


def settled(files: ServedFiles) -> Changes:
    """Return what has changed once nothing is written any more."""
    files.changes()
    return files.changes()


def test_a_folder_has_archives_unpacked_archives_and_yaml_files(tmp_path: Path) -> None:
    for name in ("a.mar", "b.tar.gz", "c.yaml", "notes.txt", ".draft.mar"):
        (tmp_path / name).touch()
    unpacked = tmp_path / "unpacked" / MANIFEST
    unpacked.parent.mkdir(parents=True)
    unpacked.write_text("{}")
    names = [path.name for path in ServedFiles([tmp_path]).paths()]
    assert names == ["a.mar", "b.tar.gz", "c.yaml", "unpacked"]
    assert ServedFiles([tmp_path / "unpacked"]).paths() == [tmp_path / "unpacked"]
    assert not ServedFiles([tmp_path / "a.mar"]).is_watched


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with refused(ArchiveError, str(tmp_path)):
        ServedFiles([tmp_path]).paths()


def test_a_name_is_for_one_archive(tmp_path: Path) -> None:
    for name in ("a.mar", "b.mar"):
        (tmp_path / name).touch()
    with refused(ArchiveError, "--model-name"):
        ServedFiles([tmp_path], "film").paths()


def test_what_is_there_at_the_start_is_no_change(files: ServedFiles) -> None:
    assert settled(files) == NONE


def test_a_new_file_counts_once_it_stays_the_same(files: ServedFiles, tmp_path: Path) -> None:
    new = tmp_path / "new.mar"
    new.write_text("a")
    assert files.changes() == NONE
    new.write_text("ab")
    assert files.changes() == NONE
    assert files.changes() == Changes(written=[new])
    assert files.changes() == NONE


def test_a_file_that_is_replaced_has_changed(files: ServedFiles, tmp_path: Path) -> None:
    draft, first = tmp_path / ".draft", tmp_path / "first.mar"
    draft.touch()
    os.utime(draft, ns=(0, first.stat().st_mtime_ns))
    draft.replace(first)
    assert settled(files) == Changes(written=[first])


def test_a_removed_file_is_told_once_and_is_new_when_it_returns(
    files: ServedFiles, tmp_path: Path
) -> None:
    first = tmp_path / "first.mar"
    first.unlink()
    assert files.changes() == Changes(removed=[first])
    assert files.changes() == NONE
    first.touch()
    assert settled(files) == Changes(written=[first])


def test_a_yaml_is_packed_by_the_commands_of_the_kit_and_their_error_is_that_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "film.yaml").touch()
    (tmp_path / "fails.py").write_text("raise SystemExit('no such mode')")
    monkeypatch.setattr(served_files, "DOWNLOAD", "fails")
    files = ServedFiles([tmp_path], environment={"PYTHONPATH": str(tmp_path)})
    with refused(ArchiveError, "film.yaml", "no such mode"):
        files.open(tmp_path / "film.yaml")


def test_the_first_archive_that_can_be_read_decides_whose_handlers_are_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "modules", {**sys.modules})
    (tmp_path / "a.mar").write_text("broken")
    for name in ("b", "c"):
        manifest = tmp_path / name / MANIFEST
        manifest.parent.mkdir(parents=True)
        manifest.write_text(json.dumps({"model": {"modelName": name}}))
    code = tmp_path / "c" / "handlers" / "__init__.py"
    code.parent.mkdir()
    code.touch()
    assert ServedFiles([tmp_path]).import_code().folder == tmp_path / "c"
    assert sys.path[0] == str(tmp_path / "c")
    with refused(ArchiveError, "a.mar"):
        ServedFiles([tmp_path / "a.mar"]).import_code()
