"""Where a generated text ends: decoding, stop strings, and streams of text up to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase, StoppingCriteria

from handlers.schemas.request import TextStream

Ids = Sequence[int]
Stops = tuple[str, ...]
AS_GENERATED = {"skip_special_tokens": True, "clean_up_tokenization_spaces": False}
# The last tokens of a prompt that decide on the beginning of the text after it.
CONTEXT = 32
INCOMPLETE = "\ufffd"


def decode_new_text(tokenizer: PreTrainedTokenizerBase, prompt: Ids, new: Ids) -> str:
    """Return the text of new tokens after a prompt, which can decide on a space before it."""
    before = len(tokenizer.decode(list(prompt), **AS_GENERATED))
    return str(tokenizer.decode([*prompt, *new], **AS_GENERATED))[before:]


def before_stop(text: str, stops: Stops) -> str:
    """Return the text up to the first stop string."""
    places = [place for stop in stops if (place := text.find(stop)) >= 0]
    return text[: min(places, default=len(text))]


class PerRowStopStrings(StoppingCriteria):
    """Ends each row at its own stop strings.

    Args:
        prompts: the tokens of each prompt without padding; `generate` may see several rows of one.
        stops: the stop strings of each prompt.
        width: the length of the padded prompts.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        prompts: Sequence[Ids],
        stops: Sequence[Stops],
        width: int,
    ) -> None:
        self._tokenizer = tokenizer
        self._prompts = [prompt[-CONTEXT:] for prompt in prompts]
        self._stops = stops
        self._width = width

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        """Return a boolean for each row: whether it has a stop string."""
        rows_per_prompt = len(input_ids) // len(self._stops)
        done = [
            self._has_stop(row, number // rows_per_prompt) for number, row in enumerate(input_ids)
        ]
        return torch.tensor(done, device=input_ids.device)

    def _has_stop(self, row: torch.Tensor, prompt: int) -> bool:
        if not self._stops[prompt]:
            return False
        new = row[self._width :].tolist()
        text = decode_new_text(self._tokenizer, self._prompts[prompt], new)
        return before_stop(text, self._stops[prompt]) != text


class StreamingCallback(StoppingCriteria):
    """Emits the new text of each row after each token, and ends no row.

    It holds back an incomplete character, and text that may become a stop string.

    Args:
        prompts: the tokens of each prompt without padding.
        streams: the stream of each row; None for a row without one.
        stops: the stop strings of each row.
        limits: the maximum number of new tokens of each row.
        ends: ids of the tokens that end a text.
        width: the length of the padded prompts.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        prompts: Sequence[Ids],
        streams: Sequence[TextStream | None],
        stops: Sequence[Stops],
        limits: Sequence[int],
        ends: Sequence[int],
        width: int,
    ) -> None:
        self._tokenizer = tokenizer
        self._prompts = [prompt[-CONTEXT:] for prompt in prompts]
        self._streams, self._stops = streams, stops
        self._limits, self._ends = limits, set(ends)
        self._width = width

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        """Emit new text; return for each row that it goes on."""
        for row, stream in enumerate(self._streams):
            if stream:
                new = input_ids[row, self._width :][: self._limits[row]].tolist()
                stream.emit(self._certain_text(row, new))
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)

    def _certain_text(self, row: int, new: list[int]) -> str:
        """Return the text that further tokens cannot change."""
        end = next((place for place, token in enumerate(new) if token in self._ends), len(new))
        text = decode_new_text(self._tokenizer, self._prompts[row], new[:end])
        text = before_stop(text.rstrip(INCOMPLETE), self._stops[row])
        held = max((_overlap(text, stop) for stop in self._stops[row]), default=0)
        return text[: len(text) - held]


def _overlap(text: str, stop: str) -> int:
    """Return how many characters at the end of a text may be the beginning of a stop string."""
    sizes = range(min(len(stop) - 1, len(text)), 0, -1)
    return next((size for size in sizes if text.endswith(stop[:size])), 0)
