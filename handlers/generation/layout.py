"""Where the new tokens of a model stand: after their prompt, or in the row of a decoder."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch

from handlers.batching.padding import Batch, Padding, pad
from handlers.batching.rows import Row
from handlers.batching.shapes import stack
from handlers.generation.parameter_spec import specs_of
from handlers.generation.parameters import GenerationParameters


class PromptLayout(ABC):
    """The rows that `generate` returns.

    Attributes:
        reads_prompt: the settings that read the tokens of a prompt, padding included, and their
            values that do not.
    """

    reads_prompt: ClassVar[Mapping[str, Any]]

    def collate(self, prompts: Sequence[Any], padding: Padding) -> Batch:
        """Return the model inputs of prompts, and of the images of all of them, as one batch."""
        return pad(prompts, padding) | join_media(prompts)

    def slots(self, batch: Batch) -> int:
        """Return the number of tokens that are computed for a batch before the new ones."""
        return batch["input_ids"].numel()

    @abstractmethod
    def first_column(self, batch: Batch) -> int:
        """Return the column of the first new token."""

    @abstractmethod
    def tokens_before(self, prompt: Row) -> Sequence[int]:
        """Return the tokens after which a new text is decoded."""

    @abstractmethod
    def row_length(self, prompt: Row, new_tokens: int) -> int:
        """Return the length of the longest row that is computed for a prompt."""


class DecoderOnly(PromptLayout):
    """New tokens follow their prompt, which is padded on the left."""

    reads_prompt: ClassVar[Mapping[str, Any]] = {
        **{
            name: spec.neutral
            for name, spec in specs_of(GenerationParameters).items()
            if spec.reads_prompt
        },
        "min_length": 0,
    }

    def first_column(self, batch: Batch) -> int:
        return int(batch["input_ids"].shape[1])

    def tokens_before(self, prompt: Row) -> Sequence[int]:
        return prompt.features["input_ids"]

    def row_length(self, prompt: Row, new_tokens: int) -> int:
        return len(prompt) + new_tokens


class EncoderDecoder(PromptLayout):
    """An encoder reads the prompt, and new tokens follow the token that a decoder starts with."""

    reads_prompt = {"encoder_repetition_penalty": 1.0, "encoder_no_repeat_ngram_size": 0}

    def first_column(self, batch: Batch) -> int:
        return 1

    def tokens_before(self, prompt: Row) -> Sequence[int]:
        return ()

    def row_length(self, prompt: Row, new_tokens: int) -> int:
        return max(len(prompt), 1 + new_tokens)


class ImageToText(PromptLayout):
    """New tokens follow the one that a decoder starts with, and a prompt is an image.

    Images of one batch have equal shapes.
    """

    reads_prompt: ClassVar[Mapping[str, Any]] = {}

    def collate(self, prompts: Sequence[Any], padding: Padding) -> Batch:
        return stack(prompts)

    def slots(self, batch: Batch) -> int:
        return 0

    def first_column(self, batch: Batch) -> int:
        return 1

    def tokens_before(self, prompt: Row) -> Sequence[int]:
        return ()

    def row_length(self, prompt: Row, new_tokens: int) -> int:
        return 1 + new_tokens


DECODER_ONLY = DecoderOnly()
ENCODER_DECODER = EncoderDecoder()
IMAGE_TO_TEXT = ImageToText()


def join_media(prompts: Sequence[Any]) -> Batch:
    """Return the model inputs of the images of all prompts, one after another."""
    return {
        name: torch.from_numpy(np.concatenate([prompt.media[name] for prompt in prompts]))
        for name in prompts[0].media
    }
