"""The base of modes whose rows are an image and a question about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from typing_extensions import TypedDict

from handlers.batching.tokenization import check_length, tokenize
from handlers.checkpoints.checkpoint import Checkpoint
from handlers.config.handler_section import HandlerSection
from handlers.config.model_config import ModelConfig
from handlers.config.quoting import quote
from handlers.errors import BadRequest
from handlers.model import Model
from handlers.tasks._image import SAMPLE_INPUTS, ImageRow, ImageTask
from handlers.tasks._media import MediaQuery
from handlers.types.model_info import Columns, Limits
from handlers.types.request import Request
from handlers.types.text_checks import check_text, json_type

FORM = '{"image": …, "question": …}'
QUESTION = "What is it?"
SAMPLE_QUESTION = {"inputs": {"image": SAMPLE_INPUTS["inputs"], "question": QUESTION}}


class ImageQuestionInput(TypedDict):
    """An image file, in base64 or as a data URI, and a question about it."""

    image: str
    question: str


@dataclass(frozen=True)
class ImageQuestion(MediaQuery):
    """An image file and a question about it."""

    question: str


class ImageQuestionTask(ImageTask):
    """A mode whose rows are an image and a question, which one tokenizer reads."""

    inputs: ClassVar[Any] = ImageQuestionInput
    sample: ClassVar[Mapping[str, Any]] = SAMPLE_QUESTION
    input_columns: ClassVar[Sequence[Columns]] = (("image", "question"),)

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        super().__init__(checkpoint, settings)
        self.tokenizer = checkpoint.text_tokenizer

    def parse(self, request: Request) -> ImageQuestion:
        file, question = self.read_inputs(request.inputs)
        parameters = self.read_parameters(request.parameters)
        question = check_text(question, "question", self.settings.max_characters)
        return ImageQuestion(self.files.file(file, "image"), parameters, question)

    def read_inputs(self, inputs: Any) -> tuple[Any, Any]:
        """Return the image and the question of a request, not yet checked.

        Raises:
            BadRequest: it has other keys.
        """
        if not isinstance(inputs, dict):
            raise BadRequest(f"inputs must be {FORM}, and is {json_type(inputs)}.")
        if inputs.keys() != {"image", "question"}:
            raise BadRequest(f"inputs has the keys {quote(sorted(map(str, inputs)))}; send {FORM}.")
        return inputs["image"], inputs["question"]

    def read(self, query: Any, file: bytes) -> list[ImageRow]:
        tokens = self.tokens(query.question)
        return [with_tokens(row, tokens) for row in super().read(query, file)]

    def warmup_batches(self, config: ModelConfig, model: Model) -> list[list[Any]]:
        """Return grey images with a question."""
        tokens = self.tokens(QUESTION)
        return [
            [with_tokens(row, tokens) for row in batch]
            for batch in super().warmup_batches(config, model)
        ]

    def tokens(self, question: str) -> dict[str, np.ndarray[Any, Any]]:
        """Return the model inputs of a question, without the first dimension of a batch.

        Raises:
            RequestTooLarge: it has too many tokens, and is not truncated.
        """
        limits: dict[str, Any] = (
            {"truncation": True, "max_length": self.max_tokens} if self.truncates else {}
        )
        encoding = tokenize(self.tokenizer, [(question, None)], **limits)
        check_length(len(encoding["input_ids"][0]), self.max_tokens, "the question")
        return {name: np.asarray(ids[0], np.int64) for name, ids in encoding.items()}

    @property
    def truncates(self) -> bool:
        """Whether a question that is too long is truncated."""
        return self.max_tokens is not None and self.settings.truncation is not False

    @property
    def max_tokens(self) -> int | None:
        """The maximum number of tokens of a question."""
        limits = (self.settings.max_length, self.checkpoint.limit)
        return min((limit for limit in limits if limit), default=None)

    @property
    def limits(self) -> Limits:
        return replace(super().limits, max_length=self.max_tokens, truncation=self.truncates)


def with_tokens(row: ImageRow, tokens: dict[str, np.ndarray[Any, Any]]) -> ImageRow:
    """Return the row of an image with the tokens of a question."""
    return replace(row, features={**row.features, **tokens})
