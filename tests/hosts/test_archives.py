"""Archives are unpacked once, safely, and imported from."""

from __future__ import annotations

import io
import json
import sys
import tarfile
import zipfile
from pathlib import Path
from random import Random

import pytest

from hf_serve.hosts.archives import (
    FOLDER_VARIABLE,
    MANIFEST,
    ArchiveError,
    config_file,
    import_from,
    open_archive,
    require_same_code,
)
from hf_serve.scripts.archives.archive_formats import ARCHIVE_FORMATS
from hf_serve.scripts.archives.manifest import manifest
from tests.sentences import refused

DOCUMENT = json.dumps({"model": {"modelName": "fox", "modelVersion": "2.0"}})


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv(FOLDER_VARIABLE, str(folder))
    return folder


def zip_of(path: Path, **files: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(str(MANIFEST), DOCUMENT)
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def tar_of(path: Path, name: str) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        entry = tarfile.TarInfo(name)
        entry.size = len(DOCUMENT)
        archive.addfile(entry, io.BytesIO(DOCUMENT.encode()))
    return path


def test_an_archive_is_unpacked_once_under_its_digest(tmp_path: Path, cache: Path) -> None:
    path = zip_of(tmp_path / "fox.mar", **{"config.json": "{}"})
    first = open_archive(path)
    (first.folder / "config.json").write_text("kept")
    assert (first.name, first.version) == ("fox", "2.0")
    assert open_archive(path) == first
    assert (first.folder / "config.json").read_text() == "kept"
    assert [each.name for each in cache.iterdir()] == [first.sha256]


def test_another_archive_of_the_same_name_has_a_folder_of_its_own(tmp_path: Path) -> None:
    first = open_archive(zip_of(tmp_path / "fox.mar", a="1"))
    second = open_archive(zip_of(tmp_path / "fox.mar", a="2"))
    assert (first.folder / "a").read_text() == "1"
    assert (second.folder / "a").read_text() == "2"


def test_a_tar_file_and_a_folder_are_archives(tmp_path: Path) -> None:
    tar = open_archive(tar_of(tmp_path / "fox.tar.gz", f"fox/{MANIFEST}"))
    folder = open_archive(tar.folder)
    assert (tar.name, folder.name, folder.folder) == ("fox", "fox", tar.folder)


def test_no_entry_is_written_outside_of_its_folder(tmp_path: Path, cache: Path) -> None:
    with refused(ArchiveError, "'../../../outside'"):
        open_archive(zip_of(tmp_path / "fox.mar", **{"../../../outside": "x"}))
    with refused(ArchiveError, "outside"):
        open_archive(tar_of(tmp_path / "fox.tar.gz", "../../../outside"))
    assert not list(tmp_path.rglob("../outside"))
    assert not (tmp_path.parent / "outside").exists()
    assert not (tmp_path / "outside").exists()


@pytest.mark.parametrize("content", [b"", b"no archive"])
def test_another_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "fox.mar"
    path.write_bytes(content)
    with refused(ArchiveError):
        open_archive(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with refused(ArchiveError, "fox.mar"):
        open_archive(tmp_path / "fox.mar")


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path, cache: Path) -> None:
    cache.mkdir()
    cache.chmod(0o777)
    with refused(ArchiveError):
        open_archive(zip_of(tmp_path / "fox.mar"))


def test_archives_with_other_code_are_not_for_the_same_process(tmp_path: Path) -> None:
    code = {"handlers/__init__.py": "", "handlers/engine.py": "1"}
    archives = [
        open_archive(zip_of(tmp_path / f"{number}.mar", **files))
        for number, files in enumerate(
            [code, {**code, "config.json": "{}"}, {**code, "handlers/engine.py": "2"}]
        )
    ]
    require_same_code(archives[:2])
    with refused(ArchiveError):
        require_same_code(archives)


def test_the_package_of_the_archive_is_imported(tmp_path: Path) -> None:
    (tmp_path / "handlers").mkdir()
    (tmp_path / "handlers" / "__init__.py").write_text("__version__ = 'of the archive'\n")
    (tmp_path / "handlers" / "errors.py").write_text("KitError = ValueError\n")
    import_from(tmp_path)
    from hf_serve import handlers  # noqa: PLC0415
    from hf_serve.handlers.errors import KitError  # noqa: PLC0415

    assert handlers.__version__ == "of the archive"
    assert KitError is sys.modules["handlers.errors"].KitError is ValueError


def test_the_manifest_of_an_archive_names_its_yaml(tmp_path: Path) -> None:
    (tmp_path / "MAR-INF").mkdir()
    (tmp_path / MANIFEST).write_text(json.dumps({"model": {"modelName": "fox"}}))
    with refused(ArchiveError, "fox", "model-config.yaml", "--config-file"):
        config_file(tmp_path)
    (tmp_path / "qa.yaml").touch()
    model = {"modelName": "fox", "configFile": "qa.yaml"}
    (tmp_path / MANIFEST).write_text(json.dumps({"model": model}))
    assert config_file(tmp_path) == tmp_path / "qa.yaml"
    (tmp_path / MANIFEST).write_text(json.dumps({"model": {**model, "configFile": 3}}))
    with refused(ArchiveError, "configFile", "3"):
        config_file(tmp_path)


def test_an_archive_without_the_kit_is_refused(tmp_path: Path) -> None:
    with refused(ArchiveError, "fox", "handlers/", "artifacts/package"):
        import_from(open_archive(zip_of(tmp_path / "fox.mar")).folder)


@pytest.mark.parametrize("change", ["cut off", "without its checksum", "changed", "no more"])
def test_a_tar_file_that_is_damaged_is_refused(tmp_path: Path, change: str) -> None:
    """No entry needs the checksum at its end, so that a change could stay unknown."""
    path = tmp_path / "fox.tar.gz"
    weights = Random(0).randbytes(100_000)
    parts = {str(MANIFEST): manifest("fox", "1.0"), "model.safetensors": weights}
    ARCHIVE_FORMATS["tgz"].write(path, "fox", dict(parts), lambda _: None)
    whole = path.read_bytes()
    middle = len(whole) // 2
    changed = whole[:middle] + bytes(8) + whole[middle + 8 :]
    path.write_bytes(
        {
            "cut off": whole[:middle],
            "without its checksum": whole[:-5],
            "changed": changed,
            "no more": whole[:20],
        }[change]
    )
    with pytest.raises(ArchiveError, match="is damaged"):
        open_archive(path)


@pytest.mark.parametrize("content", [b"[]", b"{}", b"7", b'{"model": {}}'])
def test_a_manifest_without_a_model_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / MANIFEST).parent.mkdir()
    (tmp_path / MANIFEST).write_bytes(content)
    with pytest.raises(ArchiveError):
        open_archive(tmp_path)
