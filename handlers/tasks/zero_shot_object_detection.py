"""An image to the objects in it whose labels the request names, by OWL-ViT or OWLv2.

    {"inputs": "<base64>", "parameters": {"candidate_labels": ["cat", "dog"]}} ->
    [{"score": 0.61, "label": "cat", "box": {"xmin": 12, "ymin": 52, "xmax": 314, "ymax": 470}}, …]

Each label is a separate query: an object may have several of them. Boxes are in pixels of the
image.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field, PositiveInt
from transformers import PreTrainedConfig

from ..batching.padding import Batch, Padding, pad, stack
from ..batching.rows import Outputs, Row
from ..checkpoints.checkpoint import Checkpoint
from ..config.handler_section import HandlerSection
from ..errors import WrongCheckpoint
from ..types.model_info import IMAGE_COLUMN, Exports, ModelOutputs, TaskDescription, Wire
from ..types.parameters import ANY, PipelineNames
from .bases.image import EXAMPLE, IMAGE_ROWS, ImageRow, as_batch, require_post_processing
from .bases.labels import CandidateLabelParameters
from .object_detection import DetectedObject, box_of
from .zero_shot_image_classification import CandidateLabelTask, ImageWithLabels

FAMILIES = ("owlv2", "owlvit")
# The only token of a query in the place of a label; the model masks a query that begins with it.
NO_LABEL = (0,)


class ZeroShotDetectionParameters(CandidateLabelParameters):
    """Parameters of the zero-shot-object-detection pipeline."""

    pipeline_names: ClassVar[PipelineNames] = PipelineNames(
        ignored={"batch_size": ANY, "timeout": ANY}
    )

    threshold: Annotated[float, Field(ge=0, le=1)] = 0.1
    """The lowest score of an object."""
    top_k: PositiveInt | None = None
    """Number of objects, best first. Without it, all of them."""


class Task(CandidateLabelTask):
    """Zero-shot object detection; answers as the pipeline does."""

    auto_class = "AutoModelForZeroShotObjectDetection"
    description = TaskDescription(
        Wire(
            inputs=str | ImageWithLabels,
            results=list[DetectedObject],
            example={"inputs": {"image": EXAMPLE["inputs"], "candidate_labels": "red, blue"}},
            input_columns=(("image", "candidate_labels"), IMAGE_COLUMN),
        ),
        outputs=ModelOutputs(("logits", "pred_boxes"), numbers=("pred_boxes",)),
        rows=IMAGE_ROWS,
        exports=Exports(supported=False),
    )
    parameters = ZeroShotDetectionParameters

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        super().__init__(checkpoint, settings)
        self._find_objects = require_post_processing(
            self.image_processor, "post_process_object_detection"
        )

    @classmethod
    def auto_class_for(cls, config: PreTrainedConfig) -> str:
        if config.model_type not in FAMILIES:
            raise WrongCheckpoint(
                "config.json",
                f"is of a {config.model_type} model",
                "use a checkpoint of OWL-ViT or OWLv2",
            )
        return cls.auto_class

    def collate(self, rows: Sequence[Any]) -> Batch:
        """Return images as one batch, with as many queries for each, one after another."""
        most = max(len(row.texts) for row in rows)
        queries = [
            Row({"input_ids": list(ids)})
            for row in rows
            for ids in (*row.texts, *[NO_LABEL] * (most - len(row.texts)))
        ]
        padded = pad(queries, Padding({"input_ids": int(self.tokenizer.pad_token_id or 0)}))
        return {**stack(rows), **{name: padded[name] for name in self.text_inputs}}

    def postprocess(self, row: Any, outputs: Outputs) -> Outputs:
        return {**outputs, "logits": outputs["logits"][:, : len(row.texts)]}

    def decode(
        self, item: Any, rows: Sequence[ImageRow], outputs: Sequence[Outputs]
    ) -> list[dict[str, Any]]:
        found = [
            each
            for number, label in enumerate(item.labels)
            for each in self._objects(label, number, rows[0], outputs[0], item.parameters.threshold)
        ]
        return sorted(found, key=lambda each: -each["score"])[: item.parameters.top_k]

    def _objects(
        self, label: str, number: int, row: ImageRow, outputs: Outputs, threshold: float
    ) -> list[dict[str, Any]]:
        """Return the objects of one label."""
        own = {**outputs, "logits": outputs["logits"][:, number : number + 1]}
        size = torch.tensor([[row.height, row.width]])
        found = self._find_objects(as_batch(own), threshold, size)[0]
        pairs = zip(found["scores"].tolist(), found["boxes"].tolist(), strict=True)
        return [
            {"score": score, "label": label, "box": box_of(box)} for score, box in pairs if score
        ]
