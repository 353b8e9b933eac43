"""The sections of a model-config.yaml that the kit reads itself, key by key."""

from __future__ import annotations

from typing import Any, Literal, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from handlers.config.choices import modes, nearest, save_modes

DType = Literal["float32", "bfloat16", "float16", "auto"]
Hardware = Literal["neuron", "neuronx"]
Spread = Literal["auto", "balanced", "balanced_low_0", "sequential"]
Quantization = Literal["int8", "int8_weights", "int4_weights"]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, protected_namespaces=())


class Tokenizer(_Section):
    """How the checkpoint's tokenizer is set; what is left out stays as the checkpoint says."""

    truncation_side: Literal["left", "right"] | None = None
    add_prefix_space: bool | None = None
    strip_accents: bool | None = None
    model_max_length: PositiveInt | None = None


# The format that is the checkpoint itself; the others are made from it.
CHECKPOINT = "pretrained"


class HandlerSection(_Section):
    """What is served and how: the `handler:` section."""

    mode: str
    model_name: str | None = None
    revision: str | None = None
    save_mode: str = CHECKPOINT
    dtype: DType = "float32"
    do_lower_case: bool | None = None
    num_labels: NonNegativeInt | None = None
    max_length: PositiveInt | None = None
    truncation: bool | None = None
    tokenizer: Tokenizer = Tokenizer()
    parameters: dict[str, Any] = Field(default_factory=dict)
    responses: Literal["legacy"] | None = None
    captum_explanation: bool = True
    explain_timeout: PositiveFloat | None = None
    embedding_name: str | None = None
    batch_size: PositiveInt | None = None
    hardware: Hardware | None = None
    quantization: Quantization | None = None
    calibration: str | None = None
    min_agreement: float = Field(default=0.99, ge=0, le=1)
    warmup_lengths: list[PositiveInt] = Field(default_factory=list)
    BetterTransformer: bool = True
    model_parallel: bool = False
    device_map: dict[str, int | str] | Spread | None = None
    allow_random_head: bool = False
    allow_pickle: bool = False
    max_batch_tokens: PositiveInt | None = None
    max_rows: PositiveInt = 128
    max_characters: PositiveInt = 200_000
    profile: bool = False

    @model_validator(mode="before")
    @classmethod
    def _hardware_is_a_format(cls, values: Any) -> Any:
        """Read `hardware: neuronx`, which the old example has beside `save_mode: torchscript`."""
        hardware = values.get("hardware") if isinstance(values, dict) else None
        if hardware not in get_args(Hardware):
            return values
        named = values.get("save_mode", hardware)
        if named not in (hardware, "torchscript"):
            raise ValueError(
                f"has hardware: {hardware} and save_mode: {named}"
                f"; leave hardware out, or set save_mode: {hardware}"
            )
        return {**values, "save_mode": hardware}

    @model_validator(mode="after")
    def _device_map_is_for_layers(self) -> HandlerSection:
        if not self.spreads:
            return self
        if (
            self.device_map
            and "model_parallel" in self.model_fields_set
            and not self.model_parallel
        ):
            raise ValueError("has device_map and model_parallel: false; leave one of them out")
        if self.is_exported:
            raise ValueError(
                f"has {'device_map' if self.device_map else 'model_parallel'} and"
                f" save_mode: {self.save_mode}, which is one graph"
                "; use save_mode: pretrained, or leave it out"
            )
        if isinstance(self.device_map, dict) and not set(self.device_map.values()) - {"disk"}:
            raise ValueError("has no device in device_map that computes; put one part on cpu")
        return self

    @property
    def is_exported(self) -> bool:
        """Whether the format is made from a checkpoint, and is not the checkpoint itself."""
        return self.save_mode != CHECKPOINT

    @property
    def spreads(self) -> bool:
        """Whether layers go to several places."""
        return self.model_parallel or self.device_map is not None

    @field_validator("batch_size", mode="before")
    @classmethod
    def _number_in_quotes(cls, value: Any) -> Any:
        """Read `batch_size: "4"`, as the old example has it."""
        return int(value) if isinstance(value, str) and value.isdecimal() else value

    @field_validator("mode")
    @classmethod
    def _mode_has_a_file(cls, word: str) -> str:
        return _known(word, modes())

    @field_validator("save_mode")
    @classmethod
    def _save_mode_has_a_file(cls, word: str) -> str:
        return _known(word, save_modes())


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


def _known(word: str, words: list[str]) -> str:
    if word not in words:
        raise ValueError(f"is {word!r}; {nearest(word, words)}")
    return word
