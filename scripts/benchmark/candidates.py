"""The formats that a model can have on this machine, each with its keys of the YAML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from hf_serve.handlers import formats
from hf_serve.handlers.config.handler_section import AUTO, CHECKPOINT, save_modes
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.errors import WrongConfig

FORMAT_KEYS = ("save_mode", "dtype", "quantization")
FLOAT32 = "float32"


@dataclass(frozen=True)
class Candidate:
    """A format to measure.

    Attributes:
        keys: the keys of the handler section that select it.
        problem: why it is not possible; None if it is.
    """

    keys: Mapping[str, str]
    problem: str | None = None

    @property
    def name(self) -> str:
        """Its keys in one line."""
        return ", ".join(
            self.keys[key] for key in ("save_mode", "quantization", "dtype") if key in self.keys
        )

    @property
    def save_mode(self) -> str:
        """Its `save_mode`."""
        return self.keys["save_mode"]

    @property
    def yaml(self) -> str:
        """The lines of the YAML that select it."""
        return yaml.safe_dump({"handler": dict(self.keys)}, sort_keys=False)

    def config_of(self, config: ModelConfig) -> dict[str, Any]:
        """Return the document of a YAML with this format, whose fidelity is always measured."""
        document = config.model_dump(mode="json", by_alias=True, exclude_unset=True)
        handler = {key: each for key, each in document["handler"].items() if key not in FORMAT_KEYS}
        handler |= {"min_agreement": config.handler.min_agreement, **self.keys}
        return document | {"handler": handler}


def packed_candidate(config: ModelConfig) -> Candidate:
    """Return the format that an archive has."""
    handler = config.handler.model_dump(exclude_none=True)
    return Candidate({key: handler[key] for key in FORMAT_KEYS if key in handler})


def candidates(config: ModelConfig) -> list[Candidate]:
    """Return the formats of a model, the checkpoint in float32 first, then the most exact ones."""
    others = [name for name in save_modes() if name not in (AUTO, CHECKPOINT)]
    return [each for name in (CHECKPOINT, *others) for each in _in_format(config, name)]


def _in_format(config: ModelConfig, save_mode: str) -> Iterator[Candidate]:
    """Yield a format in float32, in fewer bits where the device has them, and quantized."""
    exact = {"save_mode": save_mode, "dtype": FLOAT32}
    if problem := _problem(config, exact):
        yield Candidate(exact, problem)
        return
    yield Candidate(exact)
    automatic = exact | {"dtype": AUTO}
    if _computes_in_fewer_bits(config, save_mode):
        yield Candidate(automatic)
    for quantization in formats.get(save_mode).capabilities.quantizations:
        keys = automatic | {"quantization": quantization}
        yield Candidate(keys, _problem(config, keys))


def _problem(config: ModelConfig, keys: Mapping[str, str]) -> str | None:
    try:
        wanted = ModelConfig.parse(Candidate(keys).config_of(config), config.source)
    except WrongConfig as error:
        return error.problem
    return formats.find_problem(wanted, keys["save_mode"])


def _computes_in_fewer_bits(config: ModelConfig, save_mode: str) -> bool:
    # These imports load torch, which `--help` does not need.
    from hf_serve.handlers.checkpoints.dtypes import name_of, pick_dtype  # noqa: PLC0415
    from hf_serve.scripts.benchmark.measure import device_of  # noqa: PLC0415

    dtype = formats.get(save_mode).computes_in(AUTO)
    return name_of(pick_dtype(dtype, device_of(config))) != FLOAT32
