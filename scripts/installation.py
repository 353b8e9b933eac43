"""Where the kit is: a repository, or an installed package, which has the same files."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
IS_REPOSITORY = (ROOT / "pyproject.toml").is_file()
# The module of each verb of `hf-serve`. A module with several commands has a verb for each of them,
# or is a verb as a whole.
VERBS: Mapping[str, str] = {
    "run": "run_model",
    "check": "check_model",
    "catalogue": "list_catalogue",
    "download": "download_models",
    "pack": "create_archive",
    "start": "serve",
    "stop": "serve",
    "status": "serve",
    "logs": "serve",
    "explain": "explain_model",
    "bench": "bench_model",
    "batch": "batch_predict",
    "rollout": "rollout",
    "doctor": "doctor",
    "demo": "demo",
    "demo-models": "make_demo_models",
    "gateway": "grpc_gateway",
    "container": "container",
    "ray": "serve_ray",
    "kserve": "serve_kserve",
    "join": "join_model",
}
DISTRIBUTION = "transformers-on-torchserve"
PROGRAM, MODULE = "hf-serve", ("hf_serve", "__main__.py")
# The folder of the shell in which the command was called.
HERE = Path.cwd()
# The module whose commands are verbs.
SERVER = "serve"


def command_line(verb: str, *arguments: object) -> str:
    """Return how a user writes a command: a verb of `hf-serve`, or a script of the repository."""
    if not IS_REPOSITORY or _is_verb(Path(sys.argv[0])):
        return shlex.join([PROGRAM, verb, *map(str, arguments)])
    module = VERBS[verb]
    own = [verb] if module == SERVER else []
    script = _from_here(ROOT / "scripts" / f"{module}.py")
    return shlex.join(["python", str(script), *own, *map(str, arguments)])


def install_line(extra: str, *, openvino: bool = True) -> str:
    """Return how a user installs what a command needs beside the kit.

    Args:
        extra: the extra of the distribution, which is also a file of `requirements/`.
        openvino: whether archives with OpenVINO's format run there as well.
    """
    if not IS_REPOSITORY:
        return f"pip install '{DISTRIBUTION}[{extra}]'"
    files = _from_here(ROOT / "requirements")
    no_deps = f"-r {files}/openvino-no-deps.txt " if openvino else ""
    kit = _from_here(ROOT)
    return f"pip install -r {files}/{extra}.txt && pip install --no-deps {no_deps}-e {kit}"


def _is_verb(program: Path) -> bool:
    """Return whether a program that runs is `hf-serve`, and no script of the repository."""
    return program.name == PROGRAM or (program.parent.name, program.name) == MODULE


def _from_here(path: Path) -> Path:
    """Return a path of the repository as the shell of the user has it."""
    return path.relative_to(HERE) if path.is_relative_to(HERE) else path
