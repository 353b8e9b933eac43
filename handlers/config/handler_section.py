"""The `handler` and `pt2` sections of a model-config.yaml, which the handler reads."""

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

from handlers.config.choices import modes, save_modes, suggest

DType = Literal["float32", "bfloat16", "float16", "auto"]
Hardware = Literal["neuron", "neuronx"]
DeviceMapPolicy = Literal["auto", "balanced", "balanced_low_0", "sequential"]
Quantization = Literal["int8", "int8_weights", "int4_weights"]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, protected_namespaces=())


class Tokenizer(_Section):
    """The `tokenizer` section; omitted keys keep the checkpoint's value."""

    truncation_side: Literal["left", "right"] | None = None
    add_prefix_space: bool | None = None
    strip_accents: bool | None = None
    model_max_length: PositiveInt | None = None


# The format of the checkpoint itself; all other formats are exported from it.
CHECKPOINT = "pretrained"


class HandlerSection(_Section):
    """The `handler` section: the model, its task, its format and its limits."""

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
    device_map: dict[str, int | str] | DeviceMapPolicy | None = None
    allow_random_head: bool = False
    allow_pickle: bool = False
    max_batch_tokens: PositiveInt | None = None
    max_rows: PositiveInt = 128
    max_characters: PositiveInt = 200_000
    profile: bool = False

    @model_validator(mode="before")
    @classmethod
    def _hardware_is_a_format(cls, values: Any) -> Any:
        """Read `hardware: neuronx` beside `save_mode: torchscript`, as in TorchServe's example."""
        hardware = values.get("hardware") if isinstance(values, dict) else None
        if hardware not in get_args(Hardware):
            return values
        save_mode = values.get("save_mode", hardware)
        if save_mode not in (hardware, "torchscript"):
            raise ValueError(
                f"has hardware: {hardware} and save_mode: {save_mode}"
                f"; leave hardware out, or set save_mode: {hardware}"
            )
        return {**values, "save_mode": hardware}

    @model_validator(mode="after")
    def _device_map_needs_a_checkpoint(self) -> HandlerSection:
        if not self.uses_device_map:
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
            raise ValueError("has device_map with disk only; place at least one part on cpu")
        return self

    @property
    def is_exported(self) -> bool:
        """Whether the model is exported from a checkpoint to another format."""
        return self.save_mode != CHECKPOINT

    @property
    def uses_device_map(self) -> bool:
        """Whether the layers are distributed over several devices."""
        return self.model_parallel or self.device_map is not None

    @field_validator("batch_size", mode="before")
    @classmethod
    def _parse_quoted_number(cls, value: Any) -> Any:
        """Read `batch_size: "4"`, as in TorchServe's example."""
        return int(value) if isinstance(value, str) and value.isdecimal() else value

    @field_validator("mode")
    @classmethod
    def _check_mode(cls, mode: str) -> str:
        return _check_choice(mode, modes())

    @field_validator("save_mode")
    @classmethod
    def _check_save_mode(cls, save_mode: str) -> str:
        return _check_choice(save_mode, save_modes())


class Compile(_Section):
    """The `pt2.compile` section: `enable` and the keyword arguments of `torch.compile`."""

    enable: bool = False
    backend: str = "inductor"
    mode: str | None = None
    dynamic: bool | None = None
    fullgraph: bool = False
    options: dict[str, Any] | None = None


class Pt2(_Section):
    """The `pt2` section."""

    compile: Compile = Compile()


def _check_choice(word: str, choices: list[str]) -> str:
    if word not in choices:
        raise ValueError(f"is {word!r}; {suggest(word, choices)}")
    return word
