"""Audio to labels with scores.

{"inputs": "<base64>"}                               -> [{"label": "dog", "score": 0.94}, …]
{"inputs": "<base64>", "parameters": {"top_k": 1}}   -> the best label

The body may also be the bytes of the audio file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator, PositiveInt

from handlers.batching.batches import ArrayRow
from handlers.batching.rows import Outputs
from handlers.checkpoints.checkpoint import Checkpoint
from handlers.config.handler_section import HandlerSection
from handlers.tasks.base import Label
from handlers.tasks.bases.audio import AUDIO_ROWS, SAMPLE_INPUTS, AudioTask
from handlers.tasks.bases.labels import sigmoid, softmax
from handlers.tasks.bases.media import MediaInput
from handlers.types.model_info import AUDIO_COLUMN, ModelOutputs, TaskDescription, Wire
from handlers.types.parameters import ANY, Parameters, PipelineNames, in_lower_case

Function = Literal["sigmoid", "softmax", "none"]
FUNCTIONS: Mapping[str, Any] = {"sigmoid": sigmoid, "softmax": softmax, "none": np.asarray}


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
        Wire(
            inputs=str,
            results=list[Label],
            example=SAMPLE_INPUTS,
            input_columns=(AUDIO_COLUMN,),
            result_columns=("label", "score"),
        ),
        outputs=ModelOutputs(("logits",)),
        rows=AUDIO_ROWS,
    )
    parameters = AudioClassificationParameters

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        super().__init__(checkpoint, settings)
        self.labels = checkpoint.labels

    def decode(self, item: MediaInput, rows: Sequence[ArrayRow], outputs: Sequence[Outputs]) -> Any:
        scores = self.scores(item, outputs[0])
        best = np.argsort(-scores, kind="stable")[: item.parameters.top_k]
        return [{"label": self.labels[number], "score": float(scores[number])} for number in best]

    def scores(self, item: MediaInput, outputs: Outputs) -> npt.NDArray[Any]:
        """Return the score of each class. Shape: (classes,)."""
        function: Any = FUNCTIONS[item.parameters.function_to_apply or "softmax"]
        return np.asarray(function(outputs["logits"]))
