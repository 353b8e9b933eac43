"""The files of sentence-transformers in a checkpoint: modules, pooling, prompts and limits.

    modules.json                         the modules in their order, and their folders
    1_Pooling/config.json                how vectors of tokens become one vector of the text
    2_Dense/config.json, model.safetensors
    sentence_bert_config.json            max_seq_length, do_lower_case
    config_sentence_transformers.json    prompts, default_prompt_name, similarity_fn_name

A checkpoint without modules.json has the mean of its tokens' vectors, not normalized, as
sentence-transformers loads it. Source of the formats: the `save` methods of the modules of
sentence-transformers 2.0 to 5.7.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from pydantic import BaseModel, Field, PositiveInt

from handlers.checkpoints.pooling_head import PoolingHead, TextSlots
from handlers.checkpoints.sentence_modules import (
    CONFIG,
    MODULES,
    ModuleEntry,
    layers_dimension,
    load_layers,
    read_model,
    read_modules,
)
from handlers.errors import WrongCheckpoint

SETTINGS = "config_sentence_transformers.json"
# Earlier versions named the file after the family.
LIMITS = re.compile(r"sentence_[a-z-]+_config\.json")
# An input of a row: 1 for the tokens of a prompt that are not pooled.
PROMPT_MASK = "prompt_mask"
OUTPUT = "sentence_embedding"
FIRST = ("Transformer", "Pooling")

PoolingMode = Literal["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
Similarity = Literal["cosine", "dot", "euclidean", "manhattan"]

# The keys of versions before 5.4, in the order in which their vectors are concatenated.
POOLING_KEYS: dict[str, PoolingMode] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


class PoolingConfig(BaseModel):
    """The config of the pooling; versions before 5.4 have a key of its own for each mode."""

    pooling_mode: PoolingMode | list[PoolingMode] | None = None
    include_prompt: bool = True
    pooling_mode_cls_token: bool = False
    pooling_mode_max_tokens: bool = False
    pooling_mode_mean_tokens: bool = False
    pooling_mode_mean_sqrt_len_tokens: bool = False
    pooling_mode_weightedmean_tokens: bool = False
    pooling_mode_lasttoken: bool = False

    @property
    def modes(self) -> list[PoolingMode]:
        """The modes whose vectors are concatenated."""
        if self.pooling_mode:
            return [self.pooling_mode] if isinstance(self.pooling_mode, str) else self.pooling_mode
        return [mode for key, mode in POOLING_KEYS.items() if getattr(self, key)] or ["mean"]


class Limits(BaseModel):
    """sentence_bert_config.json."""

    max_seq_length: PositiveInt | None = None
    do_lower_case: bool = False

    @classmethod
    def read(cls, directory: Path) -> Limits:
        """Return those of a checkpoint; without the file, none.

        Raises:
            WrongCheckpoint: the file is damaged.
        """
        path = next((path for path in sorted(directory.glob("*.json")) if _is_limits(path)), None)
        return read_model(path, Limits) if path else cls()


class Settings(BaseModel):
    """config_sentence_transformers.json."""

    prompts: dict[str, str] = Field(default_factory=dict)
    default_prompt_name: str | None = None
    similarity_fn_name: Similarity | None = None


@dataclass(frozen=True)
class SentenceTransformer:
    """The modules of a checkpoint behind its model, without their weights.

    Attributes:
        directory: the checkpoint.
        pooling: the config of the pooling.
        layers: the modules behind it.
        normalizes: whether the vectors have a length of 1 at the end.
        dimension: how many numbers a vector has.
        limits: how long a text may be, and whether it is read in lower case.
        settings: the prompts, and how vectors are compared.
    """

    directory: Path
    pooling: PoolingConfig
    layers: tuple[ModuleEntry, ...]
    normalizes: bool
    dimension: int
    limits: Limits
    settings: Settings

    @classmethod
    def read(cls, directory: Path, hidden_size: int) -> SentenceTransformer:
        """Read the files of a checkpoint.

        Args:
            directory: the checkpoint.
            hidden_size: the size of the model's vectors.

        Raises:
            WrongCheckpoint: a file is damaged, or a module is not supported.
        """
        has_modules = (directory / MODULES).is_file()
        modules = read_modules(directory, FIRST) if has_modules else []
        layers = modules[1:]
        config = PoolingConfig()
        if modules:
            config = read_model(directory / modules[0].path / CONFIG, PoolingConfig)
        normalizes = bool(layers and layers[-1].kind == "Normalize")
        behind = tuple(layers[:-1] if normalizes else layers)
        dimension = layers_dimension(directory, hidden_size * len(config.modes), behind)
        settings = read_model(directory / SETTINGS, Settings, optional=True)
        _check_default_prompt(settings)
        return cls(
            directory,
            config,
            behind,
            normalizes,
            dimension,
            Limits.read(directory),
            settings,
        )

    def reduction(self) -> SentencePooling:
        """Return the pooling and the modules behind it, with their weights.

        Raises:
            WrongCheckpoint: weights are missing or do not fit.
        """
        return SentencePooling(self.pooling, load_layers(self.directory, self.layers))


class SentencePooling(PoolingHead):
    """One vector for each text of those of its tokens, in float32.

    The vectors are not normalized at the end, so that they can be truncated before.
    """

    writes = OUTPUT

    def __init__(self, config: PoolingConfig, layers: Sequence[torch.nn.Module] = ()) -> None:
        super().__init__()
        self.modes = config.modes
        self.inputs = () if config.include_prompt else (PROMPT_MASK,)
        self.layers = torch.nn.Sequential(*layers)

    def forward(
        self, values: torch.Tensor, slots: TextSlots, **inputs: torch.Tensor
    ) -> torch.Tensor:
        pooled_slots = slots.without(inputs[PROMPT_MASK]) if inputs else slots
        positions = slots.positions if "weightedmean" in self.modes else None
        vectors = [self._pool(mode, values.float(), pooled_slots, positions) for mode in self.modes]
        vector: torch.Tensor = self.layers(torch.cat(vectors, -1))
        return vector

    def _pool(
        self,
        mode: PoolingMode,
        values: torch.Tensor,
        slots: TextSlots,
        positions: torch.Tensor | None,
    ) -> torch.Tensor:
        if mode == "cls":
            return slots.first(values)
        if mode == "lasttoken":
            return slots.last(values)
        if mode == "max":
            return slots.maximum(values)
        if positions is not None and mode == "weightedmean":
            weights = (slots.members * positions).sum(1, keepdim=True).clamp(min=1)
            return slots.sum(values, positions) / weights.to(values.dtype)
        lengths = slots.lengths.to(values.dtype)
        return slots.sum(values) / (lengths if mode == "mean" else lengths.sqrt())


def _is_limits(path: Path) -> bool:
    return bool(LIMITS.fullmatch(path.name))


def _check_default_prompt(settings: Settings) -> None:
    name = settings.default_prompt_name
    if name is not None and name not in settings.prompts:
        raise WrongCheckpoint(
            SETTINGS,
            f"has default_prompt_name {name:.80}, which is not one of its prompts",
            "add the prompt or remove the name",
        )
