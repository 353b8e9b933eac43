"""Text that is told while it is generated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tokenizers.decoders import DecodeStream
from transformers import PreTrainedTokenizerBase, StoppingCriteria

from handlers.generation.stopping import Stops, before_stop
from handlers.schemas.request import TextStream


class StreamingCallback(StoppingCriteria):
    """Tells each row's new text after each token, and stops none.

    What may still become a stop string or half of a character is held back.

    Args:
        prompts: the rows' prompts, as ids without padding.
        listeners: who hears each row; None for nobody.
        stops: each row's stop strings.
        rooms: how many new tokens each row gets.
        ends: ids that end a text.
        width: width of the padded prompts; what lies behind is new.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        *,
        prompts: Sequence[list[int]],
        streams: Sequence[TextStream | None],
        stops: Sequence[Stops],
        rooms: Sequence[int],
        ends: Sequence[int],
        width: int,
    ) -> None:
        self._backend = tokenizer.backend_tokenizer
        self._streams, self._stops = streams, stops
        self._decoders = [DecodeStream(ids=list(ids), skip_special_tokens=True) for ids in prompts]
        self._texts = [""] * len(prompts)
        self._rooms, self._ends = list(rooms), set(ends)
        self._seen = width

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        """Tell what is new; no row is done because of that."""
        news = input_ids[:, self._seen :].tolist()
        self._seen = input_ids.shape[1]
        for row, stream in enumerate(self._streams):
            for token in news[row] if stream else ():
                self._add(row, token)
            if stream:
                stream.emit(_certain(self._texts[row], self._stops[row]))
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)

    def _add(self, row: int, token: int) -> None:
        if token in self._ends:
            self._rooms[row] = 0
        if self._rooms[row] > 0:
            self._rooms[row] -= 1
            self._texts[row] += self._decoders[row].step(self._backend, token) or ""


def _certain(text: str, stops: Stops) -> str:
    """Return the text up to what a stop string has cut, or may cut when more comes."""
    text = before_stop(text, stops)
    held = max((_overlap(text, stop) for stop in stops), default=0)
    return text[: len(text) - held]


def _overlap(text: str, stop: str) -> int:
    """Return how many characters at the text's end may be the begin of a stop string."""
    sizes = range(min(len(stop) - 1, len(text)), 0, -1)
    return next((size for size in sizes if text.endswith(stop[:size])), 0)
