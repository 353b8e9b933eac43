from __future__ import annotations

import json
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

from handlers.runtime.integrity import SUMS, DamagedArchive, UntrustedArchive, read_sums
from scripts.kit.archive import pack
from scripts.kit.sbom import NoSums, write_sbom
from scripts.kit.verification import verify_archive
from tests.sentences import refused


@pytest.fixture
def archive(config_path: Path, handlers: Path, tmp_path: Path) -> Path:
    return pack(config_path, export_path=tmp_path / "store", handlers=handlers, checked=False).path


def test_an_archive_has_the_sum_of_each_of_its_files(archive: Path) -> None:
    with zipfile.ZipFile(archive) as content:
        listed = read_sums(content.read(SUMS))
        assert set(listed) == set(content.namelist()) - {SUMS}
    assert verify_archive(archive)


def test_a_file_that_was_added_or_changed_is_found_before_it_runs(
    archive: Path, tmp_path: Path
) -> None:
    for name in ("sitecustomize.py", "config.json"):
        changed = tmp_path / name / "m.mar"
        changed.parent.mkdir()
        with zipfile.ZipFile(archive) as source, zipfile.ZipFile(changed, "w") as target:
            for entry in source.namelist():
                if entry != name:
                    target.writestr(entry, source.read(entry))
            target.writestr(name, b"changed")
        with refused(DamagedArchive, name):
            verify_archive(changed)


def test_an_archive_without_a_signature_is_not_trusted(archive: Path, keys: Path) -> None:
    with refused(UntrustedArchive):
        verify_archive(archive, keys / "own.pub")


def test_an_sbom_names_the_model_the_files_and_the_packages(archive: Path) -> None:
    document = json.loads(write_sbom(archive).read_text(encoding="utf-8"))
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    components = {component["bom-ref"]: component for component in document["components"]}
    assert len(components) == len(document["components"])
    assert components["model"]["modelCard"] == {"modelParameters": {"task": "question_answering"}}
    with zipfile.ZipFile(archive) as content:
        listed = read_sums(content.read(SUMS))
    assert components["file:config.json"]["hashes"] == [
        {"alg": "SHA-256", "content": listed["config.json"]}
    ]
    names = {each["name"] for each in document["components"] if each["type"] == "library"}
    assert {"torch", "transformers", "torchserve", "certifi"} <= names
    assert "pytest" not in names
    assert components[f"pkg:pypi/transformers@{version('transformers')}"]["purl"]


def test_an_archive_without_sums_has_no_sbom(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "m.mar", "w") as archive:
        archive.writestr("config.json", "{}")
    with refused(NoSums, "MAR-INF/SHA256SUMS"):
        write_sbom(tmp_path / "m.mar")
