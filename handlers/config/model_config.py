"""The schema of model-config.yaml.

The download, packaging and load steps all read the file with :meth:`ModelConfig.read`, so each of
them reports a mistake with the same message.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import yaml
from pydantic import ConfigDict, PrivateAttr, ValidationError, field_validator, model_validator

from handlers.config.handler_section import HandlerSection, Pt2
from handlers.config.torchserve_section import TorchServeSection
from handlers.config.validation_messages import describe_validation_error
from handlers.errors import WrongConfig, summarize

CONFIG_FILE = "model-config.yaml"
# Of the time that is left; the rest is for the last forward pass and for writing answers.
COMPUTING_SHARE = 0.8


class ModelConfig(TorchServeSection):
    """The contents of a model-config.yaml."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, protected_namespaces=())

    handler: HandlerSection
    pt2: Pt2 = Pt2()
    _source: str = PrivateAttr(default=CONFIG_FILE)

    @field_validator("pt2", mode="before")
    @classmethod
    def _expand_backend(cls, value: Any) -> Any:
        """Read `pt2: inductor`, the short form of TorchServe before 0.9."""
        if isinstance(value, str):
            return {"compile": {"enable": True, "backend": value}}
        return value

    @model_validator(mode="after")
    def _check_distribution(self) -> ModelConfig:
        key = "device_map" if self.handler.device_map is not None else "model_parallel"
        if self.handler.uses_device_map and self.torchrun:
            raise ValueError(
                f"handler.{key} and torchrun are both set"
                f"; keep one: {key} spreads layers, torchrun splits them"
            )
        if self.handler.is_exported and self.torchrun:
            raise ValueError(
                f"handler.save_mode is {self.handler.save_mode} and torchrun is set"
                "; use save_mode: pretrained, or leave torchrun and parallelType out"
            )
        if self.continuousBatching and self.torchrun:
            raise ValueError(
                "continuousBatching is true and torchrun is set; keep one: texts that start by"
                " themselves would start in another order in each process"
            )
        return self

    @model_validator(mode="after")
    def _check_timeouts(self) -> ModelConfig:
        """Check that a batch of predictions and explanations ends before `responseTimeout`."""
        explain_timeout = self.handler.explain_timeout or 0
        if explain_timeout >= self.responseTimeout:
            raise ValueError(
                f"handler.explain_timeout is {explain_timeout:g} s and responseTimeout"
                f" is {self.responseTimeout} s; TorchServe kills a worker after responseTimeout,"
                " so lower explain_timeout"
            )
        if self.shared_predict_seconds + self.explain_seconds >= self.responseTimeout:
            raise ValueError(
                f"handler.predict_timeout is {self.shared_predict_seconds:g} s, explain_timeout"
                f" {self.explain_seconds:g} s and responseTimeout {self.responseTimeout} s"
                "; TorchServe kills a worker after responseTimeout, so lower the other two until"
                " their sum is less"
            )
        return self

    @property
    def source(self) -> str:
        """The file that the configuration was read from, for error messages."""
        return self._source

    @property
    def predict_seconds(self) -> float:
        """Time limit for predicting a batch without explanations in seconds."""
        return self.handler.predict_timeout or COMPUTING_SHARE * self.responseTimeout

    @property
    def shared_predict_seconds(self) -> float:
        """Time limit for the predictions of a batch that has explanations, too, in seconds."""
        rest = self.responseTimeout - self.explain_seconds
        return self.handler.predict_timeout or COMPUTING_SHARE * rest

    @property
    def explain_seconds(self) -> float:
        """Time limit for explaining a batch in seconds; 0 where nothing is explained."""
        if not self.handler.captum_explanation:
            return 0.0
        rest = self.responseTimeout - (self.handler.predict_timeout or 0)
        default = min(self.responseTimeout / 2, COMPUTING_SHARE * rest)
        seconds = self.handler.explain_timeout or default
        # Without predict_timeout, predictions of the same batch get a part of the time.
        return seconds if self.handler.predict_timeout else min(seconds, COMPUTING_SHARE * rest)

    @property
    def hang_seconds(self) -> float:
        """Seconds after which a batch hangs: later than its time limits, before TorchServe's."""
        longest = max(self.predict_seconds, self.shared_predict_seconds + self.explain_seconds)
        return (longest + self.responseTimeout) / 2

    def with_save_mode(self, save_mode: str) -> ModelConfig:
        """Return a copy with another format, checked again.

        Raises:
            WrongConfig: a key excludes the format.
        """
        document = self.model_dump(by_alias=True, exclude_unset=True)
        document["handler"]["save_mode"] = save_mode
        return self.parse(document, self.source)

    @classmethod
    def parse(cls, document: Any, where: str = CONFIG_FILE) -> ModelConfig:
        """Validate a parsed YAML document.

        Args:
            document: the document.
            where: its file, for error messages.

        Raises:
            WrongConfig: the document is invalid; the message describes the first mistake.
        """
        if not isinstance(document, dict) or "handler" not in document:
            raise WrongConfig(
                where,
                "has no handler section",
                "add handler: with a mode, as model_configs/ has it",
            )
        try:
            config = cls.model_validate(document)
        except ValidationError as error:
            raise WrongConfig(where, *describe_validation_error(cls, error)) from None
        config._source = where
        return config

    @classmethod
    def read(cls, path: Path) -> ModelConfig:
        """Read and validate a YAML file.

        Raises:
            WrongConfig: the file is missing, is not YAML or is invalid.
        """
        try:
            document = yaml.safe_load(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise WrongConfig(str(path), "there is no such file", "pass a YAML file") from None
        except OSError as error:
            raise WrongConfig(
                str(path), f"cannot be read ({error.strerror})", "pass a YAML file"
            ) from None
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise WrongConfig(
                str(path), f"is not YAML ({summarize(error, 300)})", "correct the YAML syntax"
            ) from None
        return cls.parse(document, str(path))._with_folders_beside(path.parent)

    def _with_folders_beside(self, folder: Path) -> ModelConfig:
        """Return a copy that names local folders from anywhere.

        A path is relative to the YAML, or else to the working folder.
        """
        handler, found = self.handler, partial(_folder_beside, folder)
        changed = {
            "model_name": found(handler.model_name),
            "assistant_model": found(handler.assistant_model),
            "adapters": {name: found(source) for name, source in handler.adapters.items()},
        }
        update = {name: each for name, each in changed.items() if each != getattr(handler, name)}
        return self.model_copy(update={"handler": handler.model_copy(update=update)})


def _folder_beside(folder: Path, name: str | None) -> str | None:
    """Return the folder that a YAML in another names; the name itself where there is none."""
    path = Path(name or "").expanduser()
    if not name or not path.parts:
        return name
    others = (each for each in (folder / path, path) if each != Path(name))
    return next((str(each) for each in others if each.is_dir()), name)
