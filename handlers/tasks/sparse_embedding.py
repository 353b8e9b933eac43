"""A text to the weights of the entries of the vocabulary that it is about (SPLADE).

{"inputs": "Ada sings."} -> [{"index": 4879, "value": 2.41, "token": "sing"}, …]

Weights are computed as by sentence-transformers' SparseEncoder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import AliasChoices, Field, PositiveInt
from transformers import PreTrainedTokenizerBase
from typing_extensions import TypedDict

from ..batching.rows import Outputs
from ..batching.tokenization import Window, check_length, tokenize
from ..checkpoints.checkpoint import Checkpoint
from ..checkpoints.pooling import PoolingHead
from ..checkpoints.sentence_transformers import SpladeConfig, SpladePooling
from ..checkpoints.sparse_router import SparseRouter
from ..config.handler_section import HandlerSection
from ..errors import RequestError
from ..types.model_info import ModelOutputs, TaskDescription, Wire
from ..types.parameters import ANY, PipelineNames
from .bases.text import SingleText, SingleTextTask, TruncationParameters

OUTPUT = SpladePooling.writes


class SparseParameters(TruncationParameters):
    """Parameters of a sparse embedding."""

    pipeline_names: ClassVar[PipelineNames] = PipelineNames(
        ignored={"batch_size": ANY, "padding": ANY}
    )

    top_k: PositiveInt | None = Field(
        default=None, validation_alias=AliasChoices("top_k", "max_active_dims")
    )
    """Number of weights, largest first. Without it, all above zero. Alias: `max_active_dims`."""
    input_type: (
        Literal["query", "document", "search_query", "search_document", "passage"] | None
    ) = Field(default=None, validation_alias=AliasChoices("input_type", "task"))
    """What the text is, for models that read queries otherwise than documents, such as
    OpenSearch's. Without it, as the checkpoint says, a document. Alias: `task`."""


class SparseWeight(TypedDict):
    """An entry of the vocabulary by its number and its text, and its weight."""

    index: int
    value: float
    token: str


class Task(SingleTextTask):
    """Sparse embeddings of a masked language model."""

    auto_class = "AutoModelForMaskedLM"
    description = TaskDescription(
        Wire(
            inputs=str,
            results=list[SparseWeight],
            example={"inputs": "Ada sings in the old bar."},
        ),
        outputs=ModelOutputs((OUTPUT,), are_vectors=True),
        service="embed_sparse",
    )
    # Each token has a score for each word of the vocabulary.
    one_row_batch_tokens = 4096
    parameters = SparseParameters

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        super().__init__(checkpoint, settings)
        self._router = SparseRouter.find(checkpoint.directory)
        if self._router is None:
            self._config, self._query_weights = SpladeConfig.read(checkpoint.directory), None
        else:
            self._config = self._router.pooling(checkpoint.directory)
            self._query_weights = self._router.query_weights(checkpoint.directory)

    @property
    def reduction(self) -> Callable[[], PoolingHead]:
        return lambda: SpladePooling(self._config)

    def is_query(self, parameters: SparseParameters) -> bool:
        """Return whether a text has the weights of a table, and the model does not read it."""
        if self._router is None:
            return False
        return (parameters.input_type or self._router.default_kind).endswith("query")

    def encode(self, inputs: Sequence[SingleText]) -> list[list[Window] | RequestError]:
        read = [item for item in inputs if not self.is_query(item.parameters)]
        rows = iter(super().encode(read))
        return [[] if self.is_query(item.parameters) else next(rows) for item in inputs]

    def decode(
        self, item: SingleText, rows: Sequence[Window], outputs: Sequence[Outputs]
    ) -> list[SparseWeight]:
        weights = outputs[0][OUTPUT] if rows else self._weights_of_query(item)
        return sparse_weights(weights, self.tokenizer, item.parameters.top_k)

    def _weights_of_query(self, item: SingleText) -> Any:
        """Return the weight of each entry of the vocabulary: of the tokens of a query, or 0.

        Raises:
            TextTooLong: the query is too long, and is not cut.
        """
        if self._query_weights is None:
            raise ValueError("this model has no weights of queries")
        encoding = tokenize(self.tokenizer, [(item.text, None)], add_special_tokens=False)
        ids = encoding["input_ids"][0]
        limit = min(filter(None, (self.max_tokens, item.parameters.max_length)), default=None)
        cuts = self.truncation if item.parameters.truncate is None else item.parameters.truncate
        if not cuts:
            check_length(len(ids), self.max_tokens, "the text")
        if limit is not None and len(ids) > limit:
            from_left = item.parameters.truncation_direction == "left"
            ids = ids[-limit:] if from_left else ids[:limit]
        weights = np.zeros_like(self._query_weights)
        weights[ids] = self._query_weights[ids]
        return weights

    def token(self, index: int) -> str:
        """Return an entry of the vocabulary; empty for one that the tokenizer does not have."""
        return _token(self.tokenizer, index)


def sparse_weights(
    weights: Any, tokenizer: PreTrainedTokenizerBase, top_k: int | None = None
) -> list[SparseWeight]:
    """Return the weights above zero, largest first.

    Args:
        weights: a weight for each entry of the vocabulary.
        top_k: how many at most.
    """
    found = np.flatnonzero(weights > 0)
    best = found[np.argsort(-weights[found], kind="stable")][:top_k].tolist()
    return [
        {"index": index, "value": float(weights[index]), "token": _token(tokenizer, index)}
        for index in best
    ]


def _token(tokenizer: PreTrainedTokenizerBase, index: int) -> str:
    return str(tokenizer.convert_ids_to_tokens(index) or "")
