"""An image to labels that the request names, by a model of images and texts such as CLIP.

    {"inputs": "<base64>", "parameters": {"candidate_labels": ["cat", "dog"]}}
    -> [{"score": 0.97, "label": "cat"}, {"score": 0.03, "label": "dog"}]

Images of equal shapes share a forward, in which each label of their requests is encoded once.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NotRequired

import numpy as np
import numpy.typing as npt
import torch
from torch.nn import functional
from typing_extensions import TypedDict

from ..batching.padding import Padding, Tensors, pad, stack
from ..batching.rows import Outputs, Row
from ..batching.tokenization import check_length, features, tokenize
from ..checkpoints.checkpoint import Checkpoint
from ..checkpoints.probe_inputs import ArrayTextInputs, TokenInputs
from ..config.handler_section import HandlerSection
from ..config.model_config import ModelConfig
from ..errors import RequestError, attempt
from ..media.files import RemoteFile
from ..model import Model
from ..types.model_info import IMAGE_COLUMN, ModelOutputs, TaskDescription, Wire
from ..types.parameters import ANY, Parameters, PipelineNames
from ..types.request import Request
from .base import Label
from .bases.image import EXAMPLE, IMAGE_ROWS, ImageRow, ImageTask
from .bases.labels import (
    CandidateLabelParameters,
    Template,
    hypothesis,
    read_labels,
    sigmoid,
    softmax,
    split_inputs,
    with_input_labels,
)
from .bases.media import MediaInput

TokenIds = tuple[int, ...]
# A token costs about as much as a patch of an image; models without patches have this side.
PATCH = 16
COLUMNS = "columns"
TEXT_INPUTS = ("input_ids", "attention_mask")
LOGITS = "logits_per_image"


class ZeroShotImageParameters(CandidateLabelParameters):
    """Parameters of the zero-shot-image-classification pipeline."""

    pipeline_names: ClassVar[PipelineNames] = PipelineNames(
        ignored={"batch_size": ANY, "timeout": ANY}
    )

    hypothesis_template: Template = "This is a photo of {}."
    """The description of an image with a label, which stands in the place of `{}`."""


class ImageWithLabels(TypedDict):
    """An image, and the labels to choose from, if `parameters` does not have them."""

    image: str
    candidate_labels: NotRequired[str | list[str]]


@dataclass(frozen=True)
class ZeroShotImageInput(MediaInput):
    """An image, its labels and the hypothesis of each."""

    labels: Sequence[str]
    hypotheses: Sequence[str]


@dataclass(frozen=True)
class LabelledRow(ImageRow):
    """An image, and the tokens of the hypothesis of each label.

    Attributes:
        texts: the token ids of each hypothesis.
        least_tokens: the number of tokens to which shorter texts are padded.
        token_cost: what a token costs, in pixels.
    """

    texts: Sequence[TokenIds]
    least_tokens: int
    token_cost: int

    @property
    def shared(self) -> Mapping[Hashable, int]:
        return {ids: max(len(ids), self.least_tokens) * self.token_cost for ids in self.texts}


class CandidateLabelTask(ImageTask):
    """A mode whose rows are images with the tokens of labels that the request names.

    Attributes:
        text_inputs: the names of the model inputs for labels.
    """

    # A compiler takes sizes that are equal in its first batch for one and the same size.
    warmup_texts: ClassVar[Sequence[str]] = ("red", "green", "a blue one")

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        super().__init__(checkpoint, settings)
        self.tokenizer = checkpoint.text_tokenizer
        # SigLIP scores each label by itself, and is trained with texts of a fixed length.
        self._independent = "siglip" in checkpoint.config.model_type
        self._least_tokens = (checkpoint.limit or 0) if self._independent else 0
        vision = getattr(checkpoint.config, "vision_config", None)
        patch = getattr(vision, "patch_size", None)
        names = dict.fromkeys(("input_ids", *self.tokenizer.model_input_names))
        self.text_inputs = tuple(name for name in names if name in TEXT_INPUTS)
        self._token_cost = (patch if isinstance(patch, int) else PATCH) ** 2

    def parse(self, request: Request) -> ZeroShotImageInput:
        inputs, labels_given = split_inputs(request.inputs)
        file: bytes | RemoteFile = self.files.file(inputs, "inputs")
        parameters: CandidateLabelParameters = self.read_parameters(
            with_input_labels(dict(request.parameters), labels_given)
        )
        limits = self.settings.max_rows, self.settings.max_characters
        labels = read_labels(parameters.candidate_labels, *limits)
        return ZeroShotImageInput(file, parameters, labels, self.texts(parameters, labels))

    def texts(self, parameters: Any, labels: Sequence[str]) -> Sequence[str]:
        """Return the texts that the model reads for labels: by default the labels themselves.

        Raises:
            RequestError: the model does not take them.
        """
        return labels

    def encoding_cost(self, item: Any) -> int:
        return super().encoding_cost(item) + sum(map(len, item.hypotheses))

    def encode(self, inputs: Sequence[Any]) -> list[list[ImageRow] | RequestError]:
        images = super().encode(inputs)
        texts = self._token_ids([text for item in inputs for text in item.hypotheses])
        return [
            image
            if isinstance(image, RequestError)
            else attempt(self.with_texts, image[0], [texts[text] for text in item.hypotheses])
            for image, item in zip(images, inputs, strict=True)
        ]

    def warmup_batches(self, config: ModelConfig, model: Model) -> list[list[Any]]:
        texts = list(self._token_ids(self.warmup_texts).values())
        return [
            [self.with_texts(row, texts)[0] for row in rows]
            for rows in super().warmup_batches(config, model)
        ]

    def with_texts(self, row: ImageRow, texts: Sequence[TokenIds]) -> list[ImageRow]:
        """Return the row of an image with the tokens of texts.

        Raises:
            RequestTooLarge: a text has more tokens than the model reads.
        """
        longest = max(map(len, texts))
        check_length(longest, self.checkpoint.limit, "a label with the template")
        fields = (row.features, row.size, row.height, row.width)
        return [LabelledRow(*fields, texts, self._least_tokens, self._token_cost)]

    def _token_ids(self, texts: Sequence[str]) -> dict[str, TokenIds]:
        """Return the token ids of texts, each of which is tokenized once."""
        distinct = list(dict.fromkeys(texts))
        cut: dict[str, Any] = {}
        if self._independent:
            cut = {"truncation": True, "max_length": self.checkpoint.limit}
        encoding = tokenize(self.tokenizer, [(text, None) for text in distinct], **cut)
        names = ["input_ids"]
        return {
            text: tuple(features(encoding, number, names)["input_ids"])
            for number, text in enumerate(distinct)
        }


class Task(CandidateLabelTask):
    """Zero-shot image classification; answers as the pipeline does."""

    auto_class = "AutoModelForZeroShotImageClassification"
    description = TaskDescription(
        Wire(
            inputs=str | ImageWithLabels,
            results=list[Label],
            example={"inputs": {"image": EXAMPLE["inputs"], "candidate_labels": "red, blue"}},
            input_columns=(("image", "candidate_labels"), IMAGE_COLUMN),
            result_columns=("label", "score"),
        ),
        outputs=ModelOutputs((LOGITS,)),
        rows=IMAGE_ROWS,
    )
    parameters: ClassVar[type[Parameters]] = ZeroShotImageParameters

    @property
    def graph_inputs(self) -> ArrayTextInputs:
        return ArrayTextInputs(
            super().graph_inputs.example,
            TokenInputs(self.text_inputs, self.checkpoint.row_maker),
            self._least_tokens or None,
        )

    def texts(self, parameters: Any, labels: Sequence[str]) -> Sequence[str]:
        """Return the hypothesis of each label."""
        return [hypothesis(parameters.hypothesis_template, label) for label in labels]

    def forward_batch(self, rows: Sequence[Any]) -> Tensors:
        """Return a batch with the numbers of each row's labels among the labels of the batch."""
        numbers = {ids: number for number, ids in enumerate(_distinct(rows))}
        columns = np.zeros((len(rows), max(len(row.texts) for row in rows)), dtype=np.int64)
        for place, row in enumerate(rows):
            columns[place, : len(row.texts)] = [numbers[ids] for ids in row.texts]
        return {**self.collate(rows), COLUMNS: torch.from_numpy(columns)}

    def forward(self, model: Model, batch: Tensors) -> dict[str, torch.Tensor]:
        """Return the logits of each image for its own labels. Shape: (images, most labels)."""
        columns = batch.pop(COLUMNS)
        logits = model.forward(batch)[LOGITS]
        return {"logits": logits.gather(1, columns.to(logits.device))}

    def collate(self, rows: Sequence[Any]) -> Tensors:
        """Return images as one batch, with each hypothesis of their labels once."""
        texts = [Row({"input_ids": list(ids)}) for ids in _distinct(rows)]
        padding = Padding({"input_ids": int(self.tokenizer.pad_token_id or 0)})
        padded = pad(texts, padding)
        batch = stack(rows)
        for name in self.text_inputs:
            missing = max(0, self._least_tokens - padded[name].shape[1])
            batch[name] = functional.pad(padded[name], (0, missing), value=padding.ids.get(name, 0))
        return batch

    def postprocess(self, row: Any, outputs: Outputs) -> Outputs:
        return {"logits": outputs["logits"][: len(row.texts)]}

    def decode(
        self, item: Any, rows: Sequence[ImageRow], outputs: Sequence[Outputs]
    ) -> list[dict[str, Any]]:
        scores = self.scores(outputs[0])
        best = np.argsort(-scores, kind="stable")
        return [{"score": float(scores[each]), "label": item.labels[each]} for each in best]

    def scores(self, outputs: Outputs) -> npt.NDArray[Any]:
        """Return the score of each label. Shape: (labels,)."""
        return (sigmoid if self._independent else softmax)(outputs["logits"])


def _distinct(rows: Sequence[LabelledRow]) -> list[TokenIds]:
    return list(dict.fromkeys(ids for row in rows for ids in row.texts))
