"""The model-config.yaml: every key, its type, its default and which keys go together.

Downloading, packing and loading read the same file through :meth:`ModelConfig.read`, so a mistake
stops the first of them that meets it, with one sentence.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    field_validator,
    model_validator,
)

from handlers.complaints import first_complaint
from handlers.errors import WrongConfig
from handlers.frontend import Frontend
from handlers.words import formats, modes, nearest

DType = Literal["float32", "bfloat16", "float16", "auto"]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, protected_namespaces=())


class Tokenizer(_Section):
    """How the checkpoint's tokenizer is set; what is left out stays as the checkpoint says."""

    truncation_side: Literal["left", "right"] | None = None
    add_prefix_space: bool | None = None
    strip_accents: bool | None = None
    model_max_length: PositiveInt | None = None


class Handler(_Section):
    """What is served and how: the `handler:` section."""

    mode: str
    model_name: str | None = None
    revision: str | None = None
    save_mode: str = "pretrained"
    dtype: DType = "float32"
    do_lower_case: bool | None = None
    num_labels: NonNegativeInt | None = None
    max_length: PositiveInt | None = None
    truncation: bool | None = None
    tokenizer: Tokenizer = Tokenizer()
    parameters: dict[str, Any] = Field(default_factory=dict)
    captum_explanation: bool = True
    explain_timeout: PositiveFloat | None = None
    embedding_name: str | None = None
    BetterTransformer: bool = True
    model_parallel: bool = False
    allow_random_head: bool = False
    allow_pickle: bool = False
    max_batch_tokens: PositiveInt | None = None
    max_rows: PositiveInt = 128
    max_characters: PositiveInt = 200_000
    profile: bool = False

    @field_validator("mode")
    @classmethod
    def _mode_has_a_file(cls, word: str) -> str:
        return _known(word, modes())

    @field_validator("save_mode")
    @classmethod
    def _save_mode_has_a_file(cls, word: str) -> str:
        return _known(word, formats())


class Compile(_Section):
    """torch.compile: `enable` and the keyword arguments of `torch.compile`."""

    enable: bool = False
    backend: str = "inductor"
    mode: str | None = None
    dynamic: bool | None = None
    fullgraph: bool = False
    options: dict[str, Any] | None = None


class Pt2(_Section):
    """The `pt2:` section."""

    compile: Compile = Compile()


class ModelConfig(Frontend):
    """A whole model-config.yaml."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, protected_namespaces=())

    handler: Handler
    pt2: Pt2 = Pt2()

    @field_validator("pt2", mode="before")
    @classmethod
    def _backend_alone(cls, value: Any) -> Any:
        """Read `pt2: inductor`, the short form of TorchServe before 0.9."""
        if isinstance(value, str):
            return {"compile": {"enable": True, "backend": value}}
        return value

    @model_validator(mode="after")
    def _one_way_to_spread(self) -> ModelConfig:
        if self.handler.model_parallel and self.torchrun:
            raise ValueError(
                "handler.model_parallel and torchrun are both set"
                "; keep one: model_parallel spreads layers, torchrun splits them"
            )
        return self

    @model_validator(mode="after")
    def _format_can_do_the_mode(self) -> ModelConfig:
        if self.handler.save_mode != "pretrained":
            check_pair(self.handler.mode, self.handler.save_mode)
        return self

    @model_validator(mode="after")
    def _time_to_explain(self) -> ModelConfig:
        if self.explain_seconds >= self.responseTimeout:
            raise ValueError(
                f"handler.explain_timeout is {self.explain_seconds:g} s and responseTimeout"
                f" is {self.responseTimeout} s; TorchServe ends a worker at the latter, so lower"
                " the former"
            )
        return self

    @property
    def explain_seconds(self) -> float:
        """How long explaining a batch may take; by default half of what TorchServe waits."""
        return self.handler.explain_timeout or self.responseTimeout / 2

    @classmethod
    def parse(cls, document: Any, where: str = "model-config.yaml") -> ModelConfig:
        """Check a YAML document that was read already.

        Raises:
            WrongConfig: with the first mistake, where it is and what would be right.
        """
        if not isinstance(document, dict) or "handler" not in document:
            raise WrongConfig(
                where, "has no handler section", f"add handler: with mode: {', '.join(modes())}"
            )
        try:
            return cls.model_validate(document)
        except ValidationError as error:
            raise WrongConfig(where, *first_complaint(cls, error)) from None

    @classmethod
    def read(cls, path: Path) -> ModelConfig:
        """Read and check a YAML file.

        Raises:
            WrongConfig: when the file is missing, is not YAML or holds a mistake.
        """
        try:
            document = yaml.safe_load(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise WrongConfig(str(path), "there is no such file", "give a YAML file") from None
        except OSError as error:
            raise WrongConfig(
                str(path), f"cannot be read ({error.strerror})", "give a YAML file"
            ) from None
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            reason = " ".join(str(error).split())
            raise WrongConfig(str(path), f"is not YAML ({reason})", "mend it") from None
        return cls.parse(document, str(path))


def _known(word: str, words: list[str]) -> str:
    if word not in words:
        raise ValueError(f"is {word!r}; {nearest(word, words)}")
    return word


def check_pair(mode: str, save_mode: str) -> None:
    """Check that a format can do what a mode needs.

    Raises:
        ValueError: it cannot; the text says which can.
    """
    # Imported here, since these know this module, and only few YAMLs need it.
    from handlers.registry import format_module, task_class  # noqa: PLC0415

    if task_class(mode).generates and not format_module(save_mode).GENERATES:
        able = [name for name in formats() if format_module(name).GENERATES]
        raise ValueError(
            f"handler.mode is {mode} and handler.save_mode is {save_mode}, which cannot generate"
            f"; use save_mode: {' or '.join(able)}"
        )
