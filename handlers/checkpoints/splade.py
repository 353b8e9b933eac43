"""SPLADE: the logits of a masked language model as the weights of its vocabulary.

    modules.json                       the modules in their order, and their folders
    1_SpladePooling/config.json        pooling_strategy, activation_function

A checkpoint without modules.json has the largest weight over its tokens, as SPLADE v2 and later
versions have. Formal, Piwowarski and Clinchant: SPLADE: Sparse Lexical and Expansion Model for
First Stage Ranking, 2021. Source of the formats: sentence-transformers 5, `SpladePooling`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ValidationError

from handlers.checkpoints.pooling_head import PoolingHead, TextSlots
from handlers.config.quoting import quote
from handlers.errors import WrongCheckpoint

MODULES, CONFIG = "modules.json", "config.json"
POOLING = "SpladePooling"
KNOWN = ("MLMTransformer", "Transformer", POOLING)


class SpladeConfig(BaseModel):
    """The config of the pooling.

    Attributes:
        pooling_strategy: what becomes of the weights of a text's tokens.
        activation_function: `log1p_relu` takes the logarithm twice.
    """

    pooling_strategy: Literal["max", "sum"] = "max"
    activation_function: Literal["relu", "log1p_relu"] = "relu"

    @classmethod
    def read(cls, directory: Path) -> SpladeConfig:
        """Read the config of a checkpoint.

        Raises:
            WrongCheckpoint: a file is damaged, or there is a module that is not supported.
        """
        pooling = next((each for each in _modules(directory) if _kind(each) == POOLING), None)
        if pooling is None:
            return cls()
        path = directory / str(pooling.get("path", "")) / CONFIG
        if not path.resolve().is_relative_to(directory.resolve()):
            raise WrongCheckpoint(MODULES, "names a folder outside of the checkpoint", "correct it")
        try:
            return cls.model_validate(_read(path))
        except ValidationError as error:
            key = ".".join(map(str, error.errors()[0]["loc"]))
            raise WrongCheckpoint(
                f"{path.parent.name}/{CONFIG}", f"has another {key} than is known", "correct it"
            ) from None


class SpladePooling(PoolingHead):
    """One weight for each entry of the vocabulary: log(1 + relu(logit)), over the tokens."""

    reads = "logits"
    writes = "sparse_embedding"

    def __init__(self, config: SpladeConfig) -> None:
        super().__init__()
        self.config = config

    def forward(
        self, values: torch.Tensor, slots: TextSlots, **inputs: torch.Tensor
    ) -> torch.Tensor:
        if self.config.pooling_strategy == "sum":
            return slots.sum(self._weights(values))
        # Weights grow with logits, so that those of the largest logits are the largest.
        return self._weights(slots.maximum(values))

    def _weights(self, logits: torch.Tensor) -> torch.Tensor:
        weights = torch.log1p(torch.relu(logits.float()))
        return torch.log1p(weights) if self.config.activation_function != "relu" else weights


def _modules(directory: Path) -> list[Mapping[str, Any]]:
    """Return the entries of modules.json; none without the file."""
    path = directory / MODULES
    if not path.is_file():
        return []
    modules = _read(path)
    if not isinstance(modules, list) or not all(isinstance(each, Mapping) for each in modules):
        raise WrongCheckpoint(MODULES, "is no list of modules", "correct the file or remove it")
    unknown = next((each for each in modules if _kind(each) not in KNOWN), None)
    if unknown is not None:
        raise WrongCheckpoint(
            MODULES,
            f"has the module {quote(_kind(unknown))}, which this mode does not support",
            f"use a checkpoint of a Transformer and {POOLING}",
        )
    return modules


def _kind(module: Mapping[str, Any]) -> str:
    """Return the name of a module's class."""
    return str(module.get("type", "")).rpartition(".")[2]


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise WrongCheckpoint(
            f"{path.parent.name}/{path.name}", "is missing", "pack the file"
        ) from None
    except ValueError:
        raise WrongCheckpoint(
            f"{path.parent.name}/{path.name}", "is damaged", "pack the file again"
        ) from None
