"""The wheel, used outside of the repository, beside packages that have the same names."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

from hf_serve.scripts.installation import ROOT
from tests.standins.archives import write_weightless, write_yaml

pytestmark = pytest.mark.server

# What the repository has below other names at the top.
LINKED = ("handlers", "hosts", "scripts", "demo_models", "model_configs", "catalogue")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of a copy of the tracked files, since a build writes into its folder."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in _tracked():
        target = folder / "repository" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_symlink():
            target.symlink_to((ROOT / name).readlink())
        elif (ROOT / name).is_file():
            os.link(ROOT / name, target)
    build = ("-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir")
    _run([sys.executable, *build, str(folder), str(folder / "repository")], folder)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel, and the packages of this environment."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(folder, symlinks=True)
    packages = folder / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    # The .pth files of these folders are not read, so that no editable installation is used.
    others = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "others.pth").write_text("\n".join(others), encoding="utf-8")
    python = str(folder / "bin" / "python")
    install = ("--python", python, "install", "--quiet", "--no-deps", "--no-index", "--force")
    _run([sys.executable, "-m", "pip", *install, str(wheel)], folder)
    return folder / "bin"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder whose packages have the names of the repository's."""
    for name in ("handlers", "hosts", "scripts"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise AssertionError('imported')\n")
    return tmp_path


def test_the_wheel_has_one_package_with_every_file(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert {name.partition("/")[0] for name in names} == {"hf_serve"}
    tracked = [name for name in _tracked() if name.startswith(tuple(f"{x}/" for x in LINKED))]
    assert not {f"hf_serve/{name}" for name in tracked} - names
    assert "hf_serve/artifacts/sequence_classification/sample.json" in names
    assert {"hf_serve/config.properties", "hf_serve/log4j2.xml"} < names


def test_the_package_is_imported_beside_packages_of_the_same_names(
    installed: Path, folder: Path
) -> None:
    program = "import hf_serve; print(hf_serve.Engine.__module__, hf_serve.__file__)"
    module, path = _run([str(installed / "python"), "-c", program], folder).split()
    assert module == "hf_serve.hosts.notebook"
    assert Path(path).is_relative_to(installed.parent)


def test_commands_read_and_write_in_the_current_folder(installed: Path, folder: Path) -> None:
    config_path = write_yaml(folder / "qa.yaml", write_weightless(folder / "weightless"))
    _run([str(installed / "hf-serve"), "pack", "--no-check", str(config_path)], folder)
    with zipfile.ZipFile(folder / "model_store" / "qa.mar") as archive:
        assert "handlers/engine.py" in archive.namelist()


def test_sentences_name_verbs(installed: Path, folder: Path) -> None:
    done = _done([str(installed / "hf-serve"), "start"], folder)
    assert done.returncode == 1
    assert "pack them with `hf-serve pack`" in done.stderr


def _tracked() -> list[str]:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()


def _run(command: list[str], folder: Path) -> str:
    done = _done(command, folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _done(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
