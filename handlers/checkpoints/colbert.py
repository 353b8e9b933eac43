"""ColBERT: a projection of each token's vector, and how queries and documents are tokenized.

PyLate writes the files of sentence-transformers:

    modules.json                         Transformer, and one or more Dense layers; no Pooling
    1_Dense/config.json, model.safetensors
    config_sentence_transformers.json    query_prefix, document_prefix, query_length, …

The authors' library writes artifact.metadata, with `linear.weight` among the weights of the model.
A checkpoint with neither has no projection, prefixes or query expansion.

Khattab and Zaharia: ColBERT, 2020. Santhanam et al.: ColBERTv2, 2022. Source of the formats: PyLate
1.6, `ColBERT.save`; colbert-ai 0.2, `ColBERTConfig`.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from pydantic import BaseModel, Field, PositiveInt, model_validator

from ..errors import WrongCheckpoint
from .pooling import PoolingHead, TextSlots
from .sentence_transformers import (
    MODULES,
    SETTINGS,
    Limits,
    ModuleEntry,
    layers_dimension,
    load_layers,
    read_model,
    read_modules,
    read_weights,
    weights_file,
)

METADATA = "artifact.metadata"
WEIGHT = "linear.weight"
OUTPUT = "token_embeddings"


class Tokenization(BaseModel):
    """How queries and documents become tokens, by the names of PyLate.

    Attributes:
        query_prefix: the token behind the first one of a query; empty for none.
        document_prefix: the same for documents.
        query_length: the tokens of a query at most, and with expansion always.
        document_length: the tokens of a document at most.
        do_query_expansion: whether a query is filled with mask tokens up to its length. Files that
            PyLate wrote before it had the key are of models that are, which their other keys show.
        attend_to_expansion_tokens: whether other tokens attend to these.
        skiplist_words: the tokens of documents that have no vector.
    """

    query_prefix: str = ""
    document_prefix: str = ""
    query_length: PositiveInt | None = None
    document_length: PositiveInt | None = None
    do_query_expansion: bool = False
    attend_to_expansion_tokens: bool = False
    skiplist_words: list[str] = Field(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def expand_by_default(cls, values: Any) -> Any:
        """Add the query expansion that files of earlier versions of PyLate do not name."""
        is_old = isinstance(values, dict) and "query_length" in values
        return {"do_query_expansion": True, **values} if is_old else values


class Metadata(BaseModel):
    """artifact.metadata."""

    query_token_id: str = "[unused0]"  # noqa: S105 - a word of the vocabulary
    doc_token_id: str = "[unused1]"  # noqa: S105 - a word of the vocabulary
    query_maxlen: PositiveInt = 32
    doc_maxlen: PositiveInt = 180
    attend_to_mask_tokens: bool = False
    mask_punctuation: bool = True
    dim: PositiveInt = 128

    def tokenization(self) -> Tokenization:
        """Return it by the names of PyLate."""
        return Tokenization(
            query_prefix=self.query_token_id,
            document_prefix=self.doc_token_id,
            query_length=self.query_maxlen,
            document_length=self.doc_maxlen,
            do_query_expansion=True,
            attend_to_expansion_tokens=self.attend_to_mask_tokens,
            skiplist_words=list(string.punctuation) if self.mask_punctuation else [],
        )


@dataclass(frozen=True)
class Colbert:
    """The files of a checkpoint beside its model.

    Attributes:
        layers: the layers behind the model in modules.json.
        has_weight: whether `linear.weight` is among the weights of the model.
        do_lower_case: whether texts are read in lower case.
    """

    directory: Path
    tokenization: Tokenization
    layers: Sequence[ModuleEntry]
    dimension: int
    has_weight: bool
    do_lower_case: bool = False

    @classmethod
    def read(cls, directory: Path, hidden_size: int) -> Self:
        """Read the files of a checkpoint.

        Raises:
            WrongCheckpoint: a file is damaged, or a module is not supported.
        """
        if (directory / METADATA).is_file():
            metadata = read_model(directory / METADATA, Metadata)
            tokenization, dimension = metadata.tokenization(), metadata.dim
            return cls(directory, tokenization, [], dimension, has_weight=True)
        tokenization = read_model(directory / SETTINGS, Tokenization, optional=True)
        has_modules = (directory / MODULES).is_file()
        layers = read_modules(directory, ["Transformer"]) if has_modules else []
        dimension = layers_dimension(directory, hidden_size, layers)
        lower = Limits.read(directory).do_lower_case
        return cls(directory, tokenization, layers, dimension, False, lower)

    def reduction(self) -> TokenProjection:
        """Return the projection with its weights.

        Raises:
            WrongCheckpoint: weights are missing or do not fit.
        """
        if self.has_weight:
            return TokenProjection([_linear(self.directory)])
        return TokenProjection(load_layers(self.directory, self.layers))


class TokenProjection(PoolingHead):
    """A vector of length 1 for each token, in float32."""

    writes = OUTPUT
    pools = False

    def __init__(self, layers: Sequence[torch.nn.Module]) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(*layers)

    def forward(
        self, values: torch.Tensor, slots: TextSlots, **inputs: torch.Tensor
    ) -> torch.Tensor:
        return torch.nn.functional.normalize(self.layers(values.float()), dim=-1)


def _linear(directory: Path) -> torch.nn.Module:
    """Return the projection whose weight is among the weights of the model."""
    path = weights_file(directory)
    weight = read_weights(path).get(WEIGHT) if path else None
    if weight is None:
        raise WrongCheckpoint(
            METADATA,
            f"is that of ColBERT, and the weights have no {WEIGHT}",
            f"pack the weights of ColBERT as one file, or remove {METADATA}",
        )
    size, hidden_size = weight.shape
    linear = torch.nn.Linear(hidden_size, size, bias=False)
    linear.load_state_dict({"weight": weight.float()})
    return linear
