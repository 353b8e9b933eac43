"""An image to the objects in it whose labels the request names.

    {"inputs": "<base64>", "parameters": {"candidate_labels": ["cat", "dog"]}} ->
    [{"score": 0.61, "label": "cat", "box": {"xmin": 12, "ymin": 52, "xmax": 314, "ymax": 470}}, …]

Each label is a separate query of OWL-ViT and OWLv2: an object may have several of them.
GroundingDINO reads all labels as one text, and says which words of it an object is. Boxes are in
pixels of the image.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from pydantic import AliasChoices, Field, PositiveInt
from transformers import GroundingDinoProcessor, PreTrainedConfig

from ..batching.padding import Padding, Tensors, pad, stack
from ..batching.rows import Outputs, Row
from ..checkpoints.checkpoint import Checkpoint
from ..config.handler_section import HandlerSection
from ..config.messages import quote
from ..errors import BadRequest, RequestTooLarge, Unprocessable, WrongCheckpoint
from ..types.model_info import IMAGE_COLUMN, Exports, ModelOutputs, TaskDescription, Wire
from ..types.parameters import ANY, PipelineNames
from .base import BaseTask
from .bases.image import (
    EXAMPLE,
    IMAGE_ROWS,
    ImageRow,
    as_batch,
    require_post_processing,
    with_tokens,
)
from .bases.labels import CandidateLabelParameters
from .object_detection import DetectedObject, box_of
from .zero_shot_image_classification import CandidateLabelTask, ImageWithLabels, TokenIds

GROUNDED_FAMILIES = ("grounding-dino", "mm-grounding-dino")
FAMILIES = ("owlv2", "owlvit", *GROUNDED_FAMILIES)
# Ends each label of a text that GroundingDINO reads.
LABEL_END = "."
THRESHOLD, GROUNDED_THRESHOLD = 0.1, 0.25
# The only token of a query in the place of a label; the model masks a query that begins with it.
NO_LABEL = (0,)


Share = Annotated[float, Field(ge=0, le=1)]


class ZeroShotDetectionParameters(CandidateLabelParameters):
    """Parameters of the zero-shot-object-detection pipeline, and of GroundingDINO's processor."""

    pipeline_names: ClassVar[PipelineNames] = PipelineNames(
        ignored={"batch_size": ANY, "timeout": ANY}
    )

    threshold: Share | None = Field(
        default=None, validation_alias=AliasChoices("threshold", "box_threshold")
    )
    """The lowest score of an object. Without it, 0.1, or 0.25 for GroundingDINO. Alias:
    `box_threshold`."""
    text_threshold: Share | None = None
    """The lowest score of a word that is part of an object's label; GroundingDINO only. Without it,
    0.25."""
    top_k: PositiveInt | None = None
    """Number of objects, best first. Without it, all of them."""


class Task(CandidateLabelTask):
    """Zero-shot object detection by OWL-ViT or OWLv2; answers as the pipeline does."""

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
    def for_config(cls, config: PreTrainedConfig) -> type[BaseTask[Any, Any]]:
        return GroundedTask if config.model_type in GROUNDED_FAMILIES else cls

    @classmethod
    def auto_class_for(cls, config: PreTrainedConfig) -> str:
        if config.model_type not in FAMILIES:
            raise WrongCheckpoint(
                "config.json",
                f"is of a {config.model_type} model",
                "use a checkpoint of OWL-ViT, OWLv2 or GroundingDINO",
            )
        return cls.auto_class

    def texts(self, parameters: Any, labels: Sequence[str]) -> Sequence[str]:
        if parameters.text_threshold is not None:
            raise Unprocessable(
                "text_threshold is set, and this model reads each label as a text; leave it out."
            )
        return labels

    def collate(self, rows: Sequence[Any]) -> Tensors:
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
        threshold = _or_default(item.parameters.threshold, THRESHOLD)
        found = [
            each
            for number, label in enumerate(item.labels)
            for each in self._objects(label, number, rows[0], outputs[0], threshold)
        ]
        return _best(found, item.parameters.top_k)

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


class GroundedTask(Task):
    """Zero-shot object detection by GroundingDINO; answers as its processor and model do.

    Images of equal shapes whose labels have equal numbers of tokens share a forward.
    """

    warmup_texts = ("red. green. a blue one.",)

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        super().__init__(checkpoint, settings)
        self._processor = GroundingDinoProcessor(self.image_processor, self.tokenizer)
        limits = (checkpoint.limit, checkpoint.config.max_text_len)
        self._most_tokens = min(limit for limit in limits if limit)

    def texts(self, parameters: Any, labels: Sequence[str]) -> Sequence[str]:
        for label in labels:
            if LABEL_END in label:
                raise BadRequest(
                    f"candidate_labels has {quote(label)}, and {LABEL_END!r} ends a label in the"
                    " text that this model reads; write it without."
                )
        return ["".join(f"{label.strip().lower()}{LABEL_END} " for label in labels).rstrip()]

    def with_texts(self, row: ImageRow, texts: Sequence[TokenIds]) -> list[ImageRow]:
        (tokens,) = texts
        if len(tokens) > self._most_tokens:
            raise RequestTooLarge(
                f"candidate_labels has {len(tokens):,} tokens as one text, and this model reads"
                f" {self._most_tokens:,}; send fewer labels, or shorter ones."
            )
        return [with_tokens(row, {"input_ids": np.asarray(tokens, np.int64)})]

    def collate(self, rows: Sequence[ImageRow]) -> Tensors:
        return stack(rows)

    def postprocess(self, row: Any, outputs: Outputs) -> Outputs:
        return outputs

    def decode(
        self, item: Any, rows: Sequence[ImageRow], outputs: Sequence[Outputs]
    ) -> list[dict[str, Any]]:
        (row,), parameters = rows, item.parameters
        (found,) = self._processor.post_process_grounded_object_detection(
            as_batch(outputs[0]),
            row.features["input_ids"][None],
            threshold=_or_default(parameters.threshold, GROUNDED_THRESHOLD),
            text_threshold=_or_default(parameters.text_threshold, GROUNDED_THRESHOLD),
            target_sizes=[(row.height, row.width)],
        )
        # Where no object is found, the tokenizer decodes one empty label.
        objects = zip(
            found["scores"].tolist(), found["text_labels"], found["boxes"].tolist(), strict=False
        )
        return _best(
            [{"score": score, "label": label, "box": box_of(box)} for score, label, box in objects],
            parameters.top_k,
        )


def _or_default(value: float | None, default: float) -> float:
    return default if value is None else value


def _best(objects: list[dict[str, Any]], top_k: int | None) -> list[dict[str, Any]]:
    """Return objects, the one with the highest score first."""
    return sorted(objects, key=lambda each: -each["score"])[:top_k]
