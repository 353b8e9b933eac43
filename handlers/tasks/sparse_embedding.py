"""A text to the weights of the entries of the vocabulary that it is about (SPLADE).

{"inputs": "Ada sings."} -> [{"index": 4879, "value": 2.41, "token": "sing"}, …]

Weights are computed as by sentence-transformers' SparseEncoder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
from pydantic import AliasChoices, Field, PositiveInt
from typing_extensions import TypedDict

from ..batching.rows import Outputs
from ..batching.tokenization import Window
from ..checkpoints.checkpoint import Checkpoint
from ..checkpoints.pooling import PoolingHead
from ..checkpoints.sentence_transformers import SpladeConfig, SpladePooling
from ..config.handler_section import HandlerSection
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
    parameters = SparseParameters

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        super().__init__(checkpoint, settings)
        self._config = SpladeConfig.read(checkpoint.directory)

    @property
    def reduction(self) -> Callable[[], PoolingHead]:
        return lambda: SpladePooling(self._config)

    def decode(
        self, item: SingleText, rows: Sequence[Window], outputs: Sequence[Outputs]
    ) -> list[SparseWeight]:
        weights = outputs[0][OUTPUT]
        found = np.flatnonzero(weights > 0)
        best = found[np.argsort(-weights[found], kind="stable")][: item.parameters.top_k].tolist()
        return [
            {"index": index, "value": float(weights[index]), "token": self.token(index)}
            for index in best
        ]

    def token(self, index: int) -> str:
        """Return an entry of the vocabulary; empty for one that the tokenizer does not have."""
        return str(self.tokenizer.convert_ids_to_tokens(index) or "")
