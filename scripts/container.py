"""Serve a model in a container that is configured by its environment alone.

It has the variables and the paths of the containers of Hugging Face (`/`, `/predict`, `/health`),
SageMaker (`/invocations`, `/ping`) and Vertex AI, which names its paths.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import typer
from yaml import YAMLError

from hf_serve.handlers.checkpoints.checkpoint_files import CONFIG
from hf_serve.handlers.checkpoints.unread_files import CODE
from hf_serve.handlers.config.documents import parse_yaml
from hf_serve.handlers.config.handler_section import modes
from hf_serve.handlers.config.task_aliases import mode_of_task
from hf_serve.handlers.errors import KitError, WrongConfig
from hf_serve.hosts.archives import MANIFEST, SUFFIXES
from hf_serve.hosts.command_line import plain_errors
from hf_serve.scripts.paths import YAMLS
from hf_serve.scripts.run_model import archive_of, serve_in_process
from hf_serve.scripts.serving.workdirs import RUN_FOLDER, STORE

# Where SageMaker, Hugging Face's endpoints and KServe mount the files of a model.
MOUNTED = ("/opt/ml/model", "/repository", "/mnt/models")
# A container's own address: what reaches it is the concern of the network of containers.
ANY_ADDRESS = "0.0.0.0"  # noqa: S104
DEFAULT_PORT = "8080"
PORT_VARIABLES = ("AIP_HTTP_PORT", "SAGEMAKER_BIND_TO_PORT", "PORT")
REVISION_VARIABLES = ("HF_REVISION", "HF_MODEL_REVISION")
TOKEN_VARIABLES = ("HF_TOKEN", "HF_HUB_TOKEN", "HF_API_TOKEN")
TRUE = frozenset({"1", "true", "yes", "y", "t", "on"})
# The section of a YAML that describes a model.
SECTION = "handler"
# Hugging Face's container has its predictions here.
PREDICT_ROUTE = "/predict"


class NoModelNamed(KitError):
    """The environment names no model."""

    def __init__(self, folders: Sequence[str]) -> None:
        super().__init__(
            "The environment names no model; set HF_MODEL_ID to its id on the hub, set HF_MODEL_DIR"
            f" to the folder of its files, or mount them at {' or '.join(folders)}."
        )


@dataclass(frozen=True)
class ContainerSettings:
    """What the environment of a container says.

    Attributes:
        models: the id of the model on the hub, its folder, its YAML, or archives.
        task: its task, as the hub names it; empty where the files tell.
        revision: its revision on the hub; empty for the newest.
        host: the address that the server binds to.
        port: its port.
        predict_route: a further path of predictions; empty for none.
        health_route: a further path that tells whether the model answers; empty for none.
    """

    models: tuple[str, ...]
    task: str
    revision: str
    host: str
    port: int
    predict_route: str
    health_route: str

    @classmethod
    def read(
        cls, environment: Mapping[str, str], mounted: Sequence[str] = MOUNTED
    ) -> ContainerSettings:
        """Read the environment.

        Args:
            environment: the variables.
            mounted: the folders that are looked into where no variable names a model.

        Raises:
            WrongConfig: a variable has a value that is not supported.
            NoModelNamed: there is no model.
        """
        _refuse_unsupported(environment)
        return cls(
            models=_models(environment, mounted),
            task=environment.get("HF_TASK", ""),
            revision=_first(environment, REVISION_VARIABLES),
            host=environment.get("HF_SERVE_HOST") or ANY_ADDRESS,
            port=_port(environment),
            predict_route=_route(environment, "AIP_PREDICT_ROUTE"),
            health_route=_route(environment, "AIP_HEALTH_ROUTE"),
        )

    @property
    def server_options(self) -> list[str]:
        """The options of `python -m hf_serve.hosts.asgi`."""
        options = ["--host", self.host, "--port", str(self.port), "--predict-route", PREDICT_ROUTE]
        if self.predict_route:
            options += ["--predict-route", self.predict_route]
        if self.health_route:
            options += ["--health-route", self.health_route]
        return options


@plain_errors()
def main() -> None:
    """Serve the model that the environment names: download, pack and answer requests.

    HF_MODEL_ID, HF_MODEL_DIR, HF_TASK, HF_REVISION, HF_TOKEN, SAGEMAKER_BIND_TO_PORT,
    AIP_HTTP_PORT, AIP_PREDICT_ROUTE, AIP_HEALTH_ROUTE, PORT, HF_SERVE_HOST and HF_SERVE_API_KEYS
    are read.
    """
    # The first process of a container ignores SIGTERM otherwise.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    settings = ContainerSettings.read(os.environ)
    if token := _first(os.environ, TOKEN_VARIABLES):
        os.environ["HF_TOKEN"] = token
    store = RUN_FOLDER / STORE
    store.mkdir(parents=True, exist_ok=True)
    mode, revision = _mode_of(settings.task), settings.revision or None
    archives = [
        Path(model)
        if is_archive(Path(model))
        else archive_of(model, mode, revision, RUN_FOLDER, store)
        for model in settings.models
    ]
    serve_in_process(archives, settings.server_options)


def is_archive(path: Path) -> bool:
    """Return whether a path is an archive, packed or unpacked."""
    return path.name.endswith(SUFFIXES) or (path / MANIFEST).is_file()


def _models(environment: Mapping[str, str], mounted: Sequence[str]) -> tuple[str, ...]:
    model, folder = environment.get("HF_MODEL_ID", ""), environment.get("HF_MODEL_DIR", "")
    # Hugging Face's container downloads to the folder, which is empty then.
    if model and folder and _models_in(Path(folder)):
        raise WrongConfig("HF_MODEL_DIR", f"is {folder} and HF_MODEL_ID is {model}", "set one")
    if model:
        return (model,)
    if folder:
        if found := _models_in(Path(folder)):
            return found
        raise WrongConfig(
            "HF_MODEL_DIR", f"is {folder}, which has no files", "mount the files of a model there"
        )
    places = (environment.get("SM_MODEL_DIR") or mounted[0], *mounted[1:])
    found = next(filter(None, (_models_in(Path(place)) for place in places)), ())
    if not found:
        raise NoModelNamed(places)
    return found


def _models_in(folder: Path) -> tuple[str, ...]:
    """Return the archives in a folder, its YAML files, or the folder itself if it has others.

    A folder that is an archive is returned itself.

    Raises:
        WrongConfig: it has code that other containers run.
    """
    if (folder / MANIFEST).is_file():  # An archive that SageMaker has unpacked.
        return (str(folder),)
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    if found := [str(file) for file in files if file.name.endswith(SUFFIXES)]:
        return tuple(found)
    is_checkpoint = (folder / CONFIG).is_file()
    yamls = [file for file in files if file.name.endswith(YAMLS)]
    if found := [str(file) for file in yamls if not is_checkpoint or _describes_model(file)]:
        return tuple(found)
    if code := next((name for name in CODE if (folder / name).is_file()), None):
        raise WrongConfig(
            str(folder),
            f"has {code}, which is not run by itself",
            "add a YAML to the folder that names it as handler.custom, or remove it",
        )
    return (str(folder),) if files else ()


def _describes_model(path: Path) -> bool:
    """Return whether a YAML is of this kit, or one that cannot be read: its load says why."""
    try:
        document = parse_yaml(path.read_text("utf-8"))
    except (OSError, ValueError, YAMLError):
        return True
    return isinstance(document, dict) and SECTION in document


def _mode_of(task: str) -> str | None:
    """Return the mode of a task; None without one.

    Raises:
        WrongConfig: no mode does it.
    """
    if not task:
        return None
    if mode := mode_of_task(task, modes()):
        return mode
    raise WrongConfig(
        "HF_TASK", f"is {task}, which is not supported", f"set one of {', '.join(modes())}"
    )


def _refuse_unsupported(environment: Mapping[str, str]) -> None:
    if uri := environment.get("AIP_STORAGE_URI"):
        raise WrongConfig(
            "AIP_STORAGE_URI",
            f"is {uri}, and buckets are not read",
            "upload the model without artifacts, and set HF_MODEL_ID, or HF_MODEL_DIR with the"
            " files in the image",
        )
    if environment.get("HF_TRUST_REMOTE_CODE", "").lower() in TRUE:
        raise WrongConfig(
            "HF_TRUST_REMOTE_CODE",
            "is set, and code of a checkpoint is not run",
            "use a checkpoint with classes of transformers",
        )
    if program := environment.get("SAGEMAKER_PROGRAM"):
        raise WrongConfig(
            "SAGEMAKER_PROGRAM",
            f"is {program}, which is not run",
            "pack an archive whose YAML names your code as handler.custom",
        )


def _port(environment: Mapping[str, str]) -> int:
    variable = next((name for name in PORT_VARIABLES if environment.get(name)), "")
    value = environment.get(variable, DEFAULT_PORT)
    if not (value.isascii() and value.isdecimal() and 0 < int(value) < 1 << 16):
        raise WrongConfig(variable, f"is {value[:100]!r}", "set a port from 1 to 65535")
    return int(value)


def _route(environment: Mapping[str, str], variable: str) -> str:
    value = environment.get(variable, "")
    if value and not value.startswith("/"):
        raise WrongConfig(variable, f"is {value[:100]!r}", "set a path that begins with /")
    return value


def _first(environment: Mapping[str, str], variables: Sequence[str]) -> str:
    return next((environment[name] for name in variables if environment.get(name)), "")


run = partial(typer.run, main)


if __name__ == "__main__":
    run()
