"""Folders and files of the kit and of its user, and the checkpoint and archive of a YAML file."""

from __future__ import annotations

import hashlib
from pathlib import Path

from hf_serve.handlers.config.handler_section import HandlerSection
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.errors import KitError, WrongConfig
from hf_serve.scripts.default_modes import default_modes
from hf_serve.scripts.installation import IS_REPOSITORY, ROOT, command_line

ARTIFACTS = ROOT / "artifacts"
MODEL_CONFIGS = ROOT / "model_configs"
CATALOGUE = ROOT / "catalogue"
# The file of a model with the packages that its own code imports.
REQUIREMENTS = "requirements.txt"
# The folder in which commands read and write, where no option names another one.
WORKSPACE = ROOT if IS_REPOSITORY else Path.cwd()
MODELS = WORKSPACE / "artifacts" / "models"
MODEL_STORE = WORKSPACE / "model_store"
BUILD = WORKSPACE / "build"
OWN_CONFIG = WORKSPACE / "config.properties"
CONFIG = OWN_CONFIG if OWN_CONFIG.is_file() else ROOT / "config.properties"
YAMLS = (".yaml", ".yml")
# What a path begins with, and no model id.
LOCAL = ("/", "./", "../", "~", ".\\")


class NotYaml(KitError):
    """A command that takes YAML files was given a model."""

    def __init__(self, model: Path) -> None:
        run = command_line("run", model)
        if model.suffix == ".json" and model.is_file():
            super().__init__(
                f"{model} is JSON and no YAML file; write its values, numbers without quotes, below"
                " handler: in a YAML file, as docs/migration.md shows, and name that."
            )
            return
        super().__init__(
            f"{model} is no YAML file; `{run}` writes one of a model, downloads, packs and serves"
            " it, or write one with handler.mode and handler.model_name."
        )


def shown(path: Path) -> str:
    """Return a path as help texts show it: from the folder of the command on, if it is in there."""
    if path.is_relative_to(ROOT) and not IS_REPOSITORY:
        return f"the kit's {path.relative_to(ROOT)}"
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def config_paths(named: list[Path] | None) -> list[Path]:
    """Return the YAML files that a command was given, or the files of the default modes.

    Raises:
        NotYaml: a name is a model or its folder.
    """
    for path in named or ():
        if path.is_dir() or not (path.is_file() or path.suffix in YAMLS):
            raise NotYaml(path)
    return list(named) if named else [config_path_of(mode) for mode in default_modes()]


def config_path_of(mode: str) -> Path:
    """Return the usual YAML file of a mode."""
    return MODEL_CONFIGS / f"{mode}.yaml"


def model_name(config_path: Path) -> str:
    """Return the name under which a YAML's model is archived and served: the file's own."""
    return config_path.stem


def build_of(export_path: Path) -> Path:
    """Return the folder of what is made on the way to the archives in a folder, such as exports."""
    return BUILD if export_path.resolve() == MODEL_STORE.resolve() else export_path / ".build"


def build_key(config_path: Path) -> str:
    """Return a name for what is made of a YAML: two files of one name in two folders differ."""
    digest = hashlib.sha256(str(config_path.resolve()).encode()).hexdigest()
    return f"{model_name(config_path)}-{digest[:8]}"


def checkpoint_of(config_path: Path, config: ModelConfig) -> Path:
    """Return the folder of a YAML's checkpoint.

    A `model_name` that is a folder is that folder; any other is in `artifacts/models/` under the
    YAML's own name, or under the name of the mode's usual YAML where both name the same model.
    """
    named = config.handler.model_name
    if named and Path(named).is_dir():
        return Path(named)
    require_folder(config_path, "handler.model_name", named)
    own, usual = MODELS / model_name(config_path), MODELS / config.handler.mode
    return usual if not own.is_dir() and _is_usual(config) else own


def assistant_of(config_path: Path, assistant: HandlerSection) -> Path:
    """Return the folder of the draft model of a YAML, given the section of it alone."""
    named = Path(assistant.model_name or "")
    if not named.is_dir():
        require_folder(config_path, "handler.assistant_model", assistant.model_name)
    return named if named.is_dir() else MODELS / f"{model_name(config_path)}.assistant_model"


def calibration_file(config_path: Path, config: ModelConfig, artifacts: Path = ARTIFACTS) -> Path:
    """Return the file that `handler.calibration` names, or the file of the mode in `artifacts`."""
    default = artifacts / config.handler.mode / "calibration.jsonl"
    named = config.handler.calibration
    return config_path.parent / named if named else default


def labelled_file(config_path: Path, config: ModelConfig) -> Path | None:
    """Return the file that `handler.labelled` names; None where it names none."""
    named = config.handler.labelled
    return config_path.parent / named if named else None


def require_folder(config_path: Path, key: str, name: str | None) -> None:
    """Check that a name, which no folder has, can be a model on a hub.

    Raises:
        WrongConfig: it is a path.
    """
    if not name or not (name.startswith(LOCAL) or name.count("/") > 1 or "\\" in name):
        return
    path = Path(name).expanduser()
    searched = dict.fromkeys([(config_path.parent / path).resolve(), path.resolve()])
    kind = "is a file and no folder" if path.is_file() else "there is no such folder"
    raise WrongConfig(
        key,
        f"is {name}, and {kind} (searched {' and '.join(map(str, searched))})",
        "correct the path, which is relative to the YAML or to the working folder, and check it"
        f" with `{command_line('download', config_path)}`",
    )


def _is_usual(config: ModelConfig) -> bool:
    """Tell whether a YAML names the model of its mode's usual YAML."""
    usual = config_path_of(config.handler.mode)
    if not usual.is_file():
        return False
    other = ModelConfig.read(usual).handler
    return (other.model_name, other.revision) == (
        config.handler.model_name,
        config.handler.revision,
    )
