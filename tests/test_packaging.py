"""The distribution: its version, commands, packages and the locks of its environments."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from hf_serve import handlers
from hf_serve.handlers import formats, tasks
from hf_serve.handlers.config.handler_section import modes
from hf_serve.handlers.http.request import HttpRequest
from hf_serve.handlers.protocols import describe
from hf_serve.handlers.protocols.base import ParsedRequest
from hf_serve.scripts import lock_requirements
from hf_serve.scripts.archives.packing import pack
from hf_serve.scripts.installation import ROOT
from tests.overlay import activated, make_overlay
from tests.standins.archives import write_weightless, write_yaml

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
COMMANDS: dict[str, str] = PROJECT["project"]["scripts"]
LOCKS = sorted((ROOT / "requirements").glob("*.txt"))
PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)", re.MULTILINE)
# Commands that do not need torch do not import it, and start fast.
HEAVY = ("torch", "transformers", "sklearn", "scipy")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return activated(make_overlay(tmp_path_factory.mktemp("overlay") / "venv", ROOT))


def pins(path: Path) -> dict[str, str]:
    found = PIN.findall(path.read_text(encoding="utf-8"))
    return {canonicalize_name(name): version for name, version in found}


class TestVersion:
    def test_is_that_of_the_changelog(self) -> None:
        headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
        if headings[0] == "Unreleased":
            headings.pop(0)
        assert headings[0] == handlers.__version__
        assert headings == sorted(headings, key=Version, reverse=True)

    def test_is_written_in_one_place(self) -> None:
        assert "version" not in PROJECT["project"]
        dynamic = PROJECT["tool"]["setuptools"]["dynamic"]
        assert dynamic == {"version": {"attr": "hf_serve.handlers.__version__"}}

    def test_is_in_each_archive(self, tmp_path: Path) -> None:
        config_path = write_yaml(tmp_path / "qa.yaml", write_weightless(tmp_path / "weightless"))
        packed = pack(config_path, export_path=tmp_path / "store", version="7.0", checked=False)
        with zipfile.ZipFile(packed.path) as archive:
            source = archive.read("handlers/__init__.py").decode()
            manifest = json.loads(archive.read("MAR-INF/MANIFEST.json"))
        assert f'__version__ = "{handlers.__version__}"' in source
        assert manifest["model"]["modelVersion"] == "7.0"  # the model's own

    def test_is_in_the_answer_of_the_describe_call(self) -> None:
        call = ParsedRequest(HttpRequest({}, {"describe": "True"}))
        answer = describe.Protocol(Mock(as_json=dict)).response_body(call, [])
        assert answer["versions"][PROJECT["project"]["name"]] == handlers.__version__


class TestLocks:
    def test_pins_what_pyproject_requires(self) -> None:
        wrong = []
        for environment in lock_requirements.ENVIRONMENTS:
            found = pins(ROOT / "requirements" / f"{environment}.txt")
            for requirement in map(Requirement, lock_requirements.requirements(environment)):
                version = found.get(canonicalize_name(requirement.name))
                if version is None or not requirement.specifier.contains(version):
                    wrong.append(f"{environment}.txt has {version} for {requirement}")
        assert not wrong

    def test_installs_on_another_machine(self) -> None:
        assert LOCKS
        assert not [
            f"{path.name}: {line}"
            for path in LOCKS
            for line, *_ in (each.partition("#") for each in path.read_text("utf-8").splitlines())
            if re.search(r"://|@|\+", line) or line.startswith(("-", "/", "nvidia", "triton=="))
        ]

    def test_environments_that_share_packages_share_versions(self) -> None:
        dev = pins(ROOT / "requirements" / "dev.txt")
        differ = []
        for other in ("server", "bench"):
            found = pins(ROOT / "requirements" / f"{other}.txt")
            shared = found.keys() & dev
            assert shared, other
            differ += [f"{other}.txt: {each}" for each in shared if found[each] != dev[each]]
        assert not differ

    @pytest.mark.parametrize("host", ["server", "ray"])
    def test_has_the_packages_of_every_format_that_auto_picks(self, host: str) -> None:
        picked = {
            name
            for mode in modes()
            for name in tasks.get(mode).description.exports.fastest_formats.values()
        }
        modules = {module for name in picked for module in formats.get(name).packages}
        files = (f"{host}.txt", "openvino-no-deps.txt")
        found = {name for file in files for name in pins(ROOT / "requirements" / file)}
        distributions = packages_distributions()
        for module in modules:
            names = distributions[module.partition(".")[0]]
            assert {canonicalize_name(name) for name in names} <= found, module

    def test_builds_of_one_machine_are_left_out(self) -> None:
        written = lock_requirements.without_builds(
            "a==1.0+cpu             # via -r -\n"
            "nvidia-cublas==1       # via torch\n"
            "triton==3.5            # via torch\n"
            "tritonclient==2.73     # via -c requirements/dev.txt, -r -\n"
        )
        assert written == (
            "a==1.0                 # via pyproject.toml\n"
            "tritonclient==2.73     # via pyproject.toml\n"
        )


class TestCommands:
    def test_has_a_script_with_the_same_function(self) -> None:
        for name, target in COMMANDS.items():
            module, _, function = target.partition(":")
            assert name.startswith("hf-serve")
            assert callable(getattr(importlib.import_module(module), function)), name
            script = ROOT.joinpath(*module.split(".")).with_suffix(".py").read_text("utf-8")
            end = f'if __name__ == "__main__":\n    {function}()'
            assert script.rstrip().endswith(end), f"{module} does not end with a call of {function}"

    def test_start_in_any_folder_without_torch(
        self, environment: dict[str, str], tmp_path: Path
    ) -> None:
        modules = sorted({target.partition(":")[0] for target in COMMANDS.values()})
        program = (
            "import importlib, sys\n"
            f"loaded = [importlib.import_module(name).__file__ for name in {modules}]\n"
            f"print(*loaded, *(name for name in {HEAVY} if name in sys.modules), sep='\\n')"
        )
        found = _run(["python", "-c", program], tmp_path, environment).split()
        assert found == [
            str(ROOT.joinpath(*name.split(".")).with_suffix(".py")) for name in modules
        ]

    @pytest.mark.server
    @pytest.mark.parametrize(
        "command",
        [
            ["hf-serve-archive"],
            ["python", str(ROOT / "scripts" / "create_archive.py")],
            ["python", "-m", "hf_serve.scripts.create_archive"],
        ],
        ids=["command", "file", "module"],
    )
    def test_can_be_started_as(
        self, command: list[str], environment: dict[str, str], tmp_path: Path
    ) -> None:
        assert "--export-path" in _run([*command, "--help"], tmp_path, environment)


def test_no_script_changes_where_modules_come_from() -> None:
    """Only the program that loads an archive alone does; an archive is in its path."""
    files = [path for name in ("scripts", "benchmarks") for path in (ROOT / name).rglob("*.py")]
    found = {path for path in files if "sys.path" in path.read_text(encoding="utf-8")}
    assert found == {ROOT / "scripts" / "archives" / "load_isolated.py"}


def test_make_help_names_every_target() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    named = set(re.findall(r'@echo "make ([\w-]+) ', text))
    phony = set(
        re.findall(r"[\w-]+", re.findall(r"^\.PHONY:((?:.*\\\n)*.*)$", text, re.MULTILINE)[0])
    )
    assert named <= phony
    assert phony - named == {"archives", "browser", "help", "models", "wrk"}  # parts of the others


def _run(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
