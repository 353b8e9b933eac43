"""An image to labels with scores.

{"inputs": "<base64>"}                               -> [{"label": "tabby", "score": 0.94}, …]
{"inputs": "<base64>", "parameters": {"top_k": 1}}   -> the best label

The body may also be the bytes of the image file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import numpy.typing as npt
from pydantic import BeforeValidator, PositiveInt

from ..batching.rows import Outputs
from ..types.model_info import Exports, ModelOutputs, TaskDescription
from ..types.parameters import ANY, Parameters, PipelineNames, in_lower_case
from .base import Label
from .bases.image import IMAGE_ROWS, ImageRow, ImageTask, image_wire
from .bases.labels import FUNCTIONS, Function, best_labels
from .bases.media import MediaInput


class ImageClassificationParameters(Parameters):
    """Parameters of the image-classification pipeline."""

    pipeline_names: ClassVar[PipelineNames] = PipelineNames(
        ignored={"batch_size": ANY, "timeout": ANY}
    )

    top_k: PositiveInt | None = 5
    """Number of labels, best first. `null` returns all of them."""
    function_to_apply: Annotated[Function | None, BeforeValidator(in_lower_case)] = None
    """Turns logits into scores. Without it, `softmax`; `sigmoid` for one label and for
    multi-label models."""


class Task(ImageTask):
    """Image classification; answers as the image-classification pipeline does."""

    auto_class = "AutoModelForImageClassification"
    description = TaskDescription(
        image_wire(results=list[Label], result_columns=("label", "score")),
        outputs=ModelOutputs(("logits",)),
        rows=IMAGE_ROWS,
        exports=Exports(fastest_formats={"cpu": "openvino"}),
        has_labels=True,
    )
    parameters = ImageClassificationParameters

    def decode(self, item: MediaInput, rows: Sequence[ImageRow], outputs: Sequence[Outputs]) -> Any:
        return best_labels(self.labels, self.scores(item, outputs[0]), item.parameters.top_k)

    def scores(self, item: MediaInput, outputs: Outputs) -> npt.NDArray[Any]:
        """Return the score of each class. Shape: (classes,)."""
        return FUNCTIONS[item.parameters.function_to_apply or self._function()](outputs["logits"])

    def _function(self) -> Function:
        if self.checkpoint.independent_labels or self.checkpoint.config.num_labels == 1:
            return "sigmoid"
        return "softmax"
