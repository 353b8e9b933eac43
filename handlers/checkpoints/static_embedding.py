"""Static embeddings: a vector for each token of a text, and no layers behind them.

sentence-transformers writes a module `StaticEmbedding`, as the first one of modules.json:

    0_StaticEmbedding/tokenizer.json
    0_StaticEmbedding/model.safetensors      embedding.weight

Newer versions write both files to the folder of modules.json. model2vec writes:

    config.json          model_type: model2vec, normalize, max_length
    tokenizer.json
    model.safetensors    embeddings; mapping, the row of each token; weights, a factor for each

The vector of a text is the mean of the vectors of its tokens, without special tokens. model2vec
leaves unknown tokens out. A text without tokens has a vector of zeros. Source of the formats:
sentence-transformers 6.2, `StaticEmbedding`; model2vec 0.10, `StaticModel`.
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any, Self

import torch
from pydantic import BaseModel, PositiveInt
from safetensors import safe_open
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel
from transformers import PreTrainedTokenizerFast as FastTokenizer
from transformers.modeling_outputs import BaseModelOutput

from ..config.documents import read_json
from ..errors import WrongCheckpoint, summarize
from .checkpoint_files import MODEL2VEC, model_type_in, static_folder
from .sentence_transformers import CONFIG, SAFETENSORS, read_model

TOKENIZER = "tokenizer.json"
# The name of the vectors in the weights of each library.
NAMES = ("embedding.weight", "embeddings")
MAPPING, FACTORS = "mapping", "weights"
# What model2vec reads of a text at most, where its config does not say.
MODEL2VEC_TOKENS = 512


class StaticConfig(PreTrainedConfig):
    """The config of static embeddings, which have none of transformers.

    Attributes:
        vocab_size: the number of tokens, and one more, whose vector is zero.
        normalizes: whether vectors have a length of 1; None where modules.json says.
        unknown_token_id: the token that is left out; None if there is none.
        max_characters: what is read of a text before it is split into tokens; None for all of it.
    """

    model_type = "static_embedding"
    vocab_size: int = 1
    hidden_size: int = 0
    normalizes: bool | None = None
    unknown_token_id: int | None = None
    max_characters: int | None = None


class StaticModel(PreTrainedModel):
    """The vectors of tokens."""

    config_class = StaticConfig
    base_model_prefix = "model"
    # There is no attention.
    _supports_sdpa = _supports_flash_attn = _supports_flex_attn = True

    def __init__(self, config: StaticConfig) -> None:
        super().__init__(config)
        self.embeddings = torch.nn.Embedding(config.vocab_size, config.hidden_size)

    def get_input_embeddings(self) -> torch.nn.Module:
        return self.embeddings

    def forward(self, input_ids: torch.Tensor, **_others: Any) -> BaseModelOutput:
        """Return the vector of each token."""
        return BaseModelOutput(last_hidden_state=self.embeddings(input_ids))


AutoConfig.register(StaticConfig.model_type, StaticConfig)
AutoModel.register(StaticConfig, StaticModel)


class Model2VecConfig(BaseModel):
    """config.json of model2vec."""

    normalize: bool = False
    max_length: PositiveInt | None = MODEL2VEC_TOKENS


@dataclass(frozen=True)
class StaticEmbedding:
    """The files of static embeddings.

    Attributes:
        folder: the folder of the tokenizer and the weights.
        model2vec: the config of model2vec; None for a module of sentence-transformers.
    """

    folder: Path
    model2vec: Model2VecConfig | None

    @classmethod
    def find(cls, directory: Path) -> Self | None:
        """Return the static embeddings in the directory of a checkpoint; None if it has others.

        Raises:
            WrongCheckpoint: the config of model2vec is damaged.
        """
        if model_type_in(directory / CONFIG) == MODEL2VEC:
            return cls(directory, read_model(directory / CONFIG, Model2VecConfig))
        folder = static_folder(directory)
        return None if folder is None else cls(directory / folder, None)

    def config(self) -> StaticConfig:
        """Return the config; sizes are read from the weights, where they are there already.

        Raises:
            WrongCheckpoint: a file cannot be read.
        """
        tokens, size = self._sizes()
        return StaticConfig(
            vocab_size=tokens + 1,
            hidden_size=size,
            pad_token_id=tokens,
            normalizes=self.model2vec.normalize if self.model2vec else None,
            unknown_token_id=self._unknown_token_id(),
            max_characters=self._max_characters(),
            architectures=[StaticModel.__name__],
        )

    def tokenizer(self, settings: Mapping[str, Any]) -> FastTokenizer:
        """Return the tokenizer, which adds no special tokens, with settings of the YAML.

        Raises:
            WrongCheckpoint: it is missing or damaged.
        """
        limit = self.model2vec.max_length if self.model2vec else None
        return FastTokenizer(
            tokenizer_object=self._kernel,
            model_input_names=["input_ids", "attention_mask"],
            clean_up_tokenization_spaces=False,
            **{**({} if limit is None else {"model_max_length": limit}), **settings},
        )

    def model(self, config: StaticConfig, dtype: torch.dtype) -> StaticModel:
        """Return the model with its weights.

        Raises:
            WrongCheckpoint: the weights are missing or damaged.
        """
        vectors = self._vectors()
        with torch.device("meta"):
            model = StaticModel(config)
        weight = torch.cat([vectors, vectors.new_zeros(1, vectors.shape[1])])
        model.embeddings = torch.nn.Embedding.from_pretrained(weight.to(dtype))
        return model.eval()

    def _vectors(self) -> torch.Tensor:
        """Return the vector of each token. Shape: (tokens, size)."""
        try:
            weights = load_file(self.folder / SAFETENSORS)
            vectors = weights[_first(NAMES, weights)].float()
            if MAPPING in weights:
                vectors = vectors[weights[MAPPING].long()]
            return vectors * weights[FACTORS].float()[:, None] if FACTORS in weights else vectors
        except Exception as error:  # noqa: BLE001 - damaged files have errors of all kinds
            raise self._wrong(SAFETENSORS, error) from None

    def _sizes(self) -> tuple[int, int]:
        """Return the number of tokens, and the size of their vectors, which is 0 without weights.

        Of the weights, only the header is read.
        """
        if not (self.folder / SAFETENSORS).is_file():
            return self._kernel.get_vocab_size(), 0
        try:
            with safe_open(self.folder / SAFETENSORS, "pt") as file:
                names = [*file.keys()]
                shapes = {name: file.get_slice(name).get_shape() for name in names}
            tokens = shapes[_first((MAPPING, FACTORS, *NAMES), shapes)]
            return int(tokens[0]), int(shapes[_first(NAMES, shapes)][1])
        except Exception as error:  # noqa: BLE001 - safetensors has its own error types
            raise self._wrong(SAFETENSORS, error) from None

    def _max_characters(self) -> int | None:
        """Return what model2vec reads of a text: its tokens at most, of the usual length."""
        if self.model2vec is None or self.model2vec.max_length is None:
            return None
        return self.model2vec.max_length * int(median(map(len, self._kernel.get_vocab())))

    def _unknown_token_id(self) -> int | None:
        """Return the token that model2vec leaves out."""
        if self.model2vec is None:
            return None
        model = self._document["model"]
        token = model.get("unk_token")
        unknown: int | None = self._kernel.token_to_id(token) if token else model.get("unk_id")
        return unknown

    @cached_property
    def _kernel(self) -> Tokenizer:
        own = {"post_processor": None, "padding": None, "truncation": None}
        document = json.dumps({**self._document, **own})
        try:
            return Tokenizer.from_str(document)
        except Exception as error:  # noqa: BLE001 - the tokenizers library raises bare Exceptions
            raise self._wrong(TOKENIZER, error) from None

    @cached_property
    def _document(self) -> dict[str, Any]:
        try:
            document = read_json(self.folder / TOKENIZER)
            return {**document, "model": dict(document["model"])}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise self._wrong(TOKENIZER, error) from None

    def _wrong(self, name: str, error: Exception) -> WrongCheckpoint:
        return WrongCheckpoint(
            name,
            f"cannot be read ({summarize(error)})",
            "pack the file as its library has saved it",
        )


def _first(wanted: Sequence[str], names: Container[str]) -> str:
    """Return the first name that is there.

    Raises:
        ValueError: none of them is.
    """
    found = next((name for name in wanted if name in names), None)
    if found is None:
        raise ValueError(f"has no {' and no '.join(wanted)}")
    return found
