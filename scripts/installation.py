"""Where the kit is: a repository, or an installed package, which has the same files."""

from __future__ import annotations

import shlex
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
# The module whose commands are verbs.
SERVER = "serve"


def command_line(verb: str, *arguments: object) -> str:
    """Return how a user writes a command: a verb of `hf-serve`, or a script of the repository."""
    if not IS_REPOSITORY:
        return shlex.join(["hf-serve", verb, *map(str, arguments)])
    module = VERBS[verb]
    own = [verb] if module == SERVER else []
    return shlex.join(["python", f"scripts/{module}.py", *own, *map(str, arguments)])


def install_line(extra: str, *, openvino: bool = True) -> str:
    """Return how a user installs what a command needs beside the kit.

    Args:
        extra: the extra of the distribution, which is also a file of `requirements/`.
        openvino: whether archives with OpenVINO's format run there as well.
    """
    if not IS_REPOSITORY:
        return f"pip install '{DISTRIBUTION}[{extra}]'"
    no_deps = "-r requirements/openvino-no-deps.txt " if openvino else ""
    return f"pip install -r requirements/{extra}.txt && pip install --no-deps {no_deps}-e ."
