"""When a fork is the same as an ordinary start of a worker, and when it is not."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

from hf_serve.hosts.fork_server.messages import WorkerRequest

# Variables that no imported module has read: TorchServe sets them for each worker, and shells for
# each program.
FREE_VARIABLES = frozenset({"PYTHONPATH", "PWD", "OLDPWD", "SHLVL", "_"})
FREE_PREFIX = "TS_"
MANIFEST = Path("MAR-INF", "MANIFEST.json")
CACHE = "__pycache__"
KIT_PACKAGE = "handlers"
MODULE_SUFFIXES = (".py", ".so", ".pyc")


def why_not_forked(request: WorkerRequest, environment: Mapping[str, str]) -> str | None:
    """Return why a worker is not started as a fork; None if it is.

    Args:
        environment: the variables of this process when it started.
    """
    if different := different_variables(request.environment, environment):
        return f"{', '.join(different)} differ from those of the fork server"
    if shadowed := own_packages(search_path(request)):
        return f"its archive has modules named {', '.join(shadowed)}"
    return _why_not_by_configuration(Path(request.folder))


def different_variables(first: Mapping[str, str], second: Mapping[str, str]) -> list[str]:
    """Return the names of variables that differ, among those that may be read at an import."""
    return sorted(
        name
        for name in first.keys() | second.keys()
        if name not in FREE_VARIABLES
        and not name.startswith(FREE_PREFIX)
        and first.get(name) != second.get(name)
    )


def search_path(request: WorkerRequest) -> list[str]:
    """Return the folders that `PYTHONPATH` of a worker names, as absolute paths."""
    named = request.environment.get("PYTHONPATH", "")
    folders = named.split(os.pathsep) if named else []
    return [str(Path(request.folder, each)) for each in folders]


def own_packages(folders: Iterable[str]) -> list[str]:
    """Return the modules of folders that are imported already, from files that differ."""
    imported = {name.partition(".")[0] for name in sys.modules} - {"__main__"}
    found = [(folder, name) for folder in folders for name in _modules_in(Path(folder))]
    return sorted(
        {name for folder, name in found if name in imported and not _is_same(name, Path(folder))}
    )


def _is_same(name: str, folder: Path) -> bool:
    """Return whether a package in a folder has the same files as the imported one."""
    imported = getattr(sys.modules.get(name), "__path__", None)
    if not imported or name != KIT_PACKAGE:
        return False
    return sums_of(folder / name) == _imported_sums(imported[0])


@cache
def _imported_sums(package: str) -> dict[str, bytes]:
    """Return the sums of an imported package, whose files nobody changes."""
    return sums_of(Path(package))


def sums_of(package: Path) -> dict[str, bytes]:
    """Return the SHA-256 sums of the files of a package by their places, as they are packed."""
    return {
        path.relative_to(package).as_posix(): sha256(path.read_bytes()).digest()
        for path in package.rglob("*")
        if path.is_file() and CACHE not in path.parts
    }


def _modules_in(folder: Path) -> Iterable[str]:
    if not folder.is_dir():
        return
    for entry in folder.iterdir():
        if entry.suffix in MODULE_SUFFIXES:
            yield entry.name.partition(".")[0]
        elif (entry / "__init__.py").is_file():
            yield entry.name


def _why_not_by_configuration(folder: Path) -> str | None:
    """Return why the YAML of a model asks for an ordinary start."""
    config = _configuration(folder)
    if (config.get("handler") or {}).get("engine") == "vllm":
        return "engine: vllm"
    parallel = [key for key in ("torchrun", "parallelType", "useVenv") if config.get(key)]
    return ", ".join(parallel) or None


def _configuration(folder: Path) -> dict[str, Any]:
    manifest = folder / MANIFEST
    if not manifest.is_file():
        return {}
    name = json.loads(manifest.read_text("utf-8"))["model"].get("configFile")
    if name is None or not (folder / name).is_file():
        return {}
    # Not at the start: the fork server imports it with the packages of workers.
    yaml = import_module("yaml")
    config = yaml.safe_load((folder / name).read_text("utf-8"))
    return config if isinstance(config, dict) else {}
