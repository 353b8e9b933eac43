from __future__ import annotations

import json
import zipfile
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path
from types import SimpleNamespace

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hf_serve.handlers.checkpoints.archive_signature import (
    SUMS,
    DamagedArchive,
    UntrustedArchive,
    read_sums,
)
from hf_serve.handlers.config.model_config import CONFIG_FILE
from hf_serve.handlers.formats import CHOICE_FILE
from hf_serve.scripts.archives.manifest import MANIFEST_FILE, manifest
from hf_serve.scripts.archives.packing import pack
from hf_serve.scripts.archives.sbom import NoSums, _packages, sbom, write_sbom
from hf_serve.scripts.archives.verification import verify_archive
from hf_serve.scripts.installation import DISTRIBUTION
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
    text = write_sbom(archive).read_text(encoding="utf-8")
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    assert write_sbom(archive).read_text(encoding="utf-8") == text
    document = json.loads(text)
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
    required = {each["ref"]: each.get("dependsOn", []) for each in document["dependencies"]}
    torch, transformers, tokenizers = (
        f"pkg:pypi/{name}@{version(name).replace('+', '%2B')}"
        for name in ("torch", "transformers", "tokenizers")
    )
    assert components[transformers]["purl"] == transformers
    assert {"model", "file:config.json", torch, transformers} <= set(required["archive"])
    assert tokenizers in required[transformers]
    assert transformers not in required[tokenizers]


def test_an_archive_without_sums_has_no_sbom(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "m.mar", "w") as archive:
        archive.writestr("config.json", "{}")
    with refused(NoSums, "MAR-INF/SHA256SUMS"):
        write_sbom(tmp_path / "m.mar")


@pytest.fixture
def documents() -> dict[str, dict[str, bytes]]:
    """The files of archives of each format, by the format."""

    def files(handler: str, **more: bytes) -> dict[str, bytes]:
        return {
            SUMS: b"",
            MANIFEST_FILE: manifest("m", "1.0"),
            CONFIG_FILE: f"handler: {{mode: fill_mask, {handler}}}".encode(),
            **more,
        }

    return {
        "pretrained": files("dtype: auto"),
        "onnx": files("save_mode: onnx"),
        "openvino": files("save_mode: openvino"),
        "auto": files("save_mode: auto", **{CHOICE_FILE: b'{"save_mode": "openvino"}'}),
    }


@pytest.mark.nightly
@pytest.mark.openvino
def test_the_packages_of_a_format_are_those_of_its_archives_only(
    documents: dict[str, dict[str, bytes]],
) -> None:
    own = {"onnx": {"onnx", "onnxruntime"}, "openvino": {"openvino", "optimum-intel", "nncf"}}
    own |= {"auto": own["openvino"], "pretrained": set()}
    others = set().union(*own.values())
    for name, files in documents.items():
        components = sbom(files)["components"]
        found = {each["purl"].split("/")[1].split("@")[0] for each in components if "purl" in each}
        assert found & others >= own[name]
        assert not found & {"pytest", "ray", "kserve", "mkdocs", DISTRIBUTION}
        # The extras of modes and settings, and what they require.
        assert found >= {"torch", "pandas", "cryptography", "soundfile"} & installed()
    pretrained, exported = (sbom(documents[name]) for name in ("pretrained", "openvino"))
    assert not {each["name"] for each in pretrained["components"]} & {"openvino", "nncf"}
    assert len(exported["components"]) > len(pretrained["components"])


def installed() -> set[str]:
    return {canonicalize_name(each.metadata["Name"]) for each in distributions()}


def test_extras_of_required_packages_are_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    required = {
        "kit": ['a[one]; extra == "x"', 'b; extra == "y"'],
        "a": ['c; extra == "one"', 'd; extra == "two"', "a[three]", 'e; extra == "three"'],
        "c": ["A_b", 'gone; sys_platform == "win32"', "missing"],
        **dict.fromkeys(("b", "d", "e", "a-b", "gone"), ()),
    }

    def of(name: str) -> SimpleNamespace:
        key = canonicalize_name(name)
        if key not in required:
            raise PackageNotFoundError(name)
        return SimpleNamespace(name=key, requires=list(required[key]))

    monkeypatch.setattr("hf_serve.scripts.archives.sbom.distribution", of)
    found = _packages([Requirement("kit[x]")])
    assert {name: package.requires for name, package in found.items()} == {
        "a": {"a", "c", "e"},
        "a-b": set(),
        "c": {"a-b", "missing"},
        "e": set(),
        "kit": {"a"},
    }
