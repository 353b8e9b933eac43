"""The model to measure: a folder of a checkpoint, a YAML file, or an archive."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.errors import KitError
from hf_serve.hosts.archives import MANIFEST, SUFFIXES, config_file, open_archive
from hf_serve.scripts.archives.contents import require_checkpoint
from hf_serve.scripts.hub.client import Hub
from hf_serve.scripts.installation import command_line
from hf_serve.scripts.paths import YAMLS, assistant_of, calibration_file, checkpoint_of, model_name


class NotMeasurable(KitError):
    """A model cannot be measured."""


@dataclass(frozen=True)
class ModelSource:
    """A model to measure.

    Attributes:
        config: its YAML, with absolute paths.
        packed: the folder of an archive without the weights of the checkpoint, whose format is the
            only one that can be measured; None where every format can be exported.
    """

    name: str
    config: ModelConfig
    packed: Path | None = None

    @property
    def checkpoint(self) -> Path:
        """The folder of the checkpoint."""
        return Path(self.config.handler.model_name or "")


def read_source(model: str, mode: str | None) -> ModelSource:
    """Return the model that a command names.

    Args:
        model: a folder of a checkpoint, a YAML file or an archive.
        mode: the mode of a checkpoint, if it is not to be detected.

    Raises:
        NotMeasurable: there is no such model.
        ConfigError: its YAML is wrong, or its checkpoint is not there.
        ModeNotCertain: the files of a checkpoint fit several modes.
        ArchiveError: the archive cannot be read.
    """
    path = Path(model).expanduser()
    if not path.exists():
        raise NotMeasurable(
            f"There is no {model}; name a folder of a checkpoint, a YAML file or an archive."
            f" `{command_line('download', 'YAML')}` downloads a model of the hub."
        )
    if path.name.endswith(SUFFIXES) or (path / MANIFEST).is_file():
        return _from_archive(path)
    if path.is_dir():
        return _from_checkpoint(path, mode)
    if path.suffix in YAMLS:
        return _from_yaml(path)
    raise NotMeasurable(
        f"{model} is neither a folder of a checkpoint, nor a YAML file, nor an archive"
        f" ({', '.join(SUFFIXES)})."
    )


def _from_yaml(path: Path) -> ModelSource:
    config = ModelConfig.read(path)
    folder = checkpoint_of(path, config)
    require_checkpoint(path, folder)
    changed: dict[str, Any] = {"model_name": str(folder.absolute())}
    if config.handler.calibration:
        changed["calibration"] = str(calibration_file(path, config).absolute())
    if assistant := config.handler.assistant:
        changed["assistant_model"] = str(assistant_of(path, assistant).absolute())
    return ModelSource(model_name(path), _with_handler(config, changed))


def _from_checkpoint(folder: Path, mode: str | None) -> ModelSource:
    # These imports load torch, which `--help` does not need.
    from hf_serve.scripts.hub.model_check import check_model  # noqa: PLC0415
    from hf_serve.scripts.run_model import name_of  # noqa: PLC0415

    found = check_model(str(folder), None, Hub(), mode)
    if found.refusal:
        raise NotMeasurable(f"{folder} is not served. {found.refusal}")
    handler = {"mode": found.mode.mode, "model_name": str(folder.absolute())}
    return ModelSource(name_of(str(folder)), ModelConfig.parse({"handler": handler}))


def _from_archive(path: Path) -> ModelSource:
    archive = open_archive(path)
    config = ModelConfig.read(config_file(archive.folder))
    # The rows of a calibration file are not in the archive.
    config = _with_handler(config, {"model_name": str(archive.folder), "calibration": None})
    has_weights = any(archive.folder.glob("*.safetensors"))
    return ModelSource(archive.name, config, None if has_weights else archive.folder)


def _with_handler(config: ModelConfig, changed: dict[str, Any]) -> ModelConfig:
    """Return a copy of a config with other keys of its handler section."""
    document = config.model_dump(mode="json", by_alias=True, exclude_unset=True)
    document["handler"] |= changed
    handler = {key: value for key, value in document["handler"].items() if value is not None}
    return ModelConfig.parse(document | {"handler": handler}, config.source)
