"""A text to a vector for each of its tokens: the last hidden states of a model.

{"inputs": "A fine film."}   -> [[[0.21, -1.3, …], …]], special tokens included
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from transformers import PreTrainedConfig

from ..batching.rows import Outputs
from ..batching.tokenization import Window
from ..checkpoints.architecture import base_class_for
from ..types.embeddings import as_list
from ..types.model_info import ModelOutputs, TaskDescription, Wire
from ..types.parameters import ANY, PipelineNames
from .bases.text import SingleText, SingleTextTask, TruncationParameters

OUTPUT = "last_hidden_state"


class FeatureParameters(TruncationParameters):
    """Parameters of the feature-extraction pipeline."""

    pipeline_names: ClassVar[PipelineNames] = PipelineNames(
        ignored={"batch_size": ANY, "padding": ANY, "return_tensors": (False,)},
        switches={"truncation": {"truncate": True}},
    )


class Task(SingleTextTask):
    """Hidden states; answers as the feature-extraction pipeline does."""

    auto_class = "AutoModel"
    description = TaskDescription(
        Wire(
            inputs=str,
            results=list[list[list[float]]],
            example={"inputs": "A fine film with a great cast."},
        ),
        outputs=ModelOutputs((OUTPUT,), per_token=(OUTPUT,), are_vectors=True),
        service="embed_all",
    )
    parameters = FeatureParameters

    @classmethod
    def auto_class_for(cls, config: PreTrainedConfig) -> str:
        return base_class_for(config)

    def result_numbers(self, item: SingleText, rows: Sequence[Window]) -> int:
        # Hardly any config names it otherwise.
        size = int(getattr(self.checkpoint.config.get_text_config(), "hidden_size", 0))
        return size * sum(map(len, rows))

    def decode(self, item: SingleText, rows: Sequence[Window], outputs: Sequence[Outputs]) -> Any:
        return [as_list(outputs[0][OUTPUT])]
