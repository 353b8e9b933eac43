"""Write `requirements/<environment>.txt`, the exact versions of each environment, with pip-compile.

`make lock` runs it in an environment that has pip-tools and nothing else. Versions that are written
already stay where pyproject.toml still allows them; with `--upgrade` the newest are taken.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# What archives need, whatever their mode and their format.
SERVING = ("dependencies", "onnx", "openvino", "tables", "audio", "diffusion")
OPERATION = ("signatures", "tracing")
# The parts of pyproject.toml that each environment has: `dependencies`, an extra or a group.
ENVIRONMENTS = {
    "server": (*SERVING, *OPERATION),
    "dev": (*SERVING, *OPERATION, "dev"),
    "latest": ("dependencies", "onnx", "tables", "audio", "diffusion", *OPERATION, "dev"),
    "gateway": ("gateway",),
    "clients": ("gateway", "clients"),
    "frameworks": ("frameworks",),
    "older-clients": ("older-clients",),
    "evaluation": ("evaluation",),
    "ray": (*SERVING, "signatures", "ray"),
    "bench": ("dependencies", "bench"),
    "docs": ("docs",),
    "mlserver": ("mlserver",),
    "infinity": ("infinity",),
    "rerank": ("rerank",),
    "vllm": ("vllm",),
}
# Environments that have the versions of another one, wherever both have a package.
CONSTRAINED = {"server": "dev", "ray": "dev", "bench": "dev", "gateway": "clients"}
OPTIONS = (
    *("--quiet", "--no-config", "--strip-extras", "--allow-unsafe", "--annotation-style=line"),
    # No address of an index and no path of this machine.
    *("--no-emit-options", "--no-emit-index-url", "--no-emit-trusted-host", "--no-emit-find-links"),
)
# What a CUDA build of torch requires: it is no part of a lock, because a CPU build has none of it.
ONLY_CUDA = re.compile(r"^(nvidia|cuda)-|^triton==")
LOCAL_VERSION = re.compile(r"(==[^+\s]+)\+\S+")
# What pip-compile names as the source of a requirement.
STDIN, OTHER_LOCK = "-r -", re.compile(r"-c \S+, ")


def main() -> None:
    """Write the files of the environments that are named, or of all."""
    options = [each for each in sys.argv[1:] if each.startswith("-")]
    named = [each for each in sys.argv[1:] if not each.startswith("-")]
    for environment in sorted(named or ENVIRONMENTS, key=CONSTRAINED.__contains__):
        lock(environment, options)


def lock(environment: str, options: list[str]) -> None:
    """Write the file of one environment."""
    path = Path("requirements") / f"{environment}.txt"
    with tempfile.TemporaryDirectory() as folder:
        if environment in CONSTRAINED:
            constraints = Path(folder) / "constraints.txt"
            constraints.write_text(shared_versions(environment), encoding="utf-8")
            options = [*options, "--constraint", str(constraints)]
        subprocess.run(
            [sys.executable, "-m", "piptools", "compile", *OPTIONS, *options, "-o", str(path), "-"],
            cwd=ROOT,
            env={**os.environ, "CUSTOM_COMPILE_COMMAND": "make lock"},
            input="\n".join(requirements(environment)),
            text=True,
            check=True,
        )
    portable = without_builds((ROOT / path).read_text(encoding="utf-8"))
    (ROOT / path).write_text(portable, encoding="utf-8")


def shared_versions(environment: str) -> str:
    """Return the versions that an environment shares with another one."""
    return (ROOT / "requirements" / f"{CONSTRAINED[environment]}.txt").read_text(encoding="utf-8")


def requirements(environment: str) -> list[str]:
    """Return what pyproject.toml requires in an environment."""
    document = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    project = document["project"]
    parts: dict[str, Any] = {
        "dependencies": project["dependencies"],
        **project["optional-dependencies"],
        **document["dependency-groups"],
    }
    return [requirement for part in ENVIRONMENTS[environment] for requirement in parts[part]]


def without_builds(text: str) -> str:
    """Return a lock that installs on another machine: no `+cpu`, and nothing for CUDA alone."""
    lines = [line for line in text.splitlines() if not ONLY_CUDA.search(line)]
    return "".join(f"{_public(line).rstrip()}\n" for line in lines)


def _public(line: str) -> str:
    line = LOCAL_VERSION.sub(lambda found: found[1].ljust(len(found[0])), line)
    return OTHER_LOCK.sub("", line).replace(STDIN, "pyproject.toml")


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:  # pip-compile has said what is wrong.
        sys.exit(error.returncode)
    except KeyboardInterrupt:
        sys.exit(130)
