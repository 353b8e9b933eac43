"""Which words that an encoder reads led to each token of the decoder's text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from handlers.errors import TextTooLong
from handlers.explainers.targets._generated_text import GeneratedTextTarget
from handlers.tasks.text2text_generation import TextToTextTask
from handlers.types.request import RequestState

TaskT = TypeVar("TaskT", bound=TextToTextTask)


class TextToTextTarget(GeneratedTextTarget[TaskT]):
    """Explains a text by what the encoder reads.

    A token that the decoder must begin with, such as that of a language, is not explained.
    """

    def decoder_start(self, state: RequestState) -> Sequence[int]:
        return self.task.decoder_start(state.input)

    def chosen_tokens(self, state: RequestState, tokens: list[int]) -> list[int]:
        forced = self.task.decoder_start(state.input)[1:]
        return tokens[1:] if tokens[:1] == forced else tokens

    def check_target(self, state: RequestState, ids: Sequence[int]) -> None:
        limit = self.task.decoder_limit
        tokens = len(self.decoder_start(state)) + len(ids)
        if tokens > limit:
            raise TextTooLong(
                f"the target has {tokens:,} tokens, and this model's texts have at most {limit:,}"
                "; shorten it."
            )
