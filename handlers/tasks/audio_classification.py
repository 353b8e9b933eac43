"""Audio to labels with scores.

{"inputs": "<base64>"}                               -> [{"label": "dog", "score": 0.94}, …]
{"inputs": "<base64>", "parameters": {"top_k": 1}}   -> the best label

The body may also be the bytes of the audio file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import numpy.typing as npt
from pydantic import BeforeValidator, PositiveInt

from ..batching.padding import ArrayRow
from ..batching.rows import Outputs
from ..types.model_info import ModelOutputs, TaskDescription
from ..types.parameters import ANY, Parameters, PipelineNames, in_lower_case
from .base import Label
from .bases.audio import AUDIO_ROWS, AudioTask, audio_wire
from .bases.labels import FUNCTIONS, Function, best_labels
from .bases.media import MediaInput


class AudioClassificationParameters(Parameters):
    """Parameters of the audio-classification pipeline."""

    pipeline_names: ClassVar[PipelineNames] = PipelineNames(ignored={"batch_size": ANY})

    top_k: PositiveInt | None = 5
    """Number of labels, best first. `null` returns all of them."""
    function_to_apply: Annotated[Function | None, BeforeValidator(in_lower_case)] = None
    """Turns logits into scores. Without it, `softmax`."""


class Task(AudioTask):
    """Audio classification; answers as the audio-classification pipeline does."""

    auto_class = "AutoModelForAudioClassification"
    description = TaskDescription(
        audio_wire(results=list[Label], result_columns=("label", "score")),
        outputs=ModelOutputs(("logits",)),
        rows=AUDIO_ROWS,
        has_labels=True,
    )
    parameters = AudioClassificationParameters

    def decode(self, item: MediaInput, rows: Sequence[ArrayRow], outputs: Sequence[Outputs]) -> Any:
        return best_labels(self.labels, self.scores(item, outputs[0]), item.parameters.top_k)

    def scores(self, item: MediaInput, outputs: Outputs) -> npt.NDArray[Any]:
        """Return the score of each class. Shape: (classes,)."""
        return FUNCTIONS[item.parameters.function_to_apply or "softmax"](outputs["logits"])
