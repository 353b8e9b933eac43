"""Stop strings: where a text ends, and when each row of a generated batch is done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase, StoppingCriteria

Stops = tuple[str, ...]


def before_stop(text: str, stops: Stops) -> str:
    """Return the text up to the first stop string."""
    places = [place for stop in stops if (place := text.find(stop)) >= 0]
    return text[: min(places, default=len(text))]


class PerRowStopStrings(StoppingCriteria):
    """Ends each row at its own stop strings.

    Args:
        stops: the stop strings of each prompt; `generate` may see several rows a prompt.
        width: width of the padded prompts; what lies behind is new.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, stops: Sequence[Stops], width: int
    ) -> None:
        self._tokenizer = tokenizer
        self._stops = stops
        self._width = width

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        """Return a boolean for each row: done or not."""
        times = len(input_ids) // len(self._stops)
        done = [
            self._stopped(row, self._stops[number // times]) for number, row in enumerate(input_ids)
        ]
        return torch.tensor(done, device=input_ids.device)

    def _stopped(self, row: torch.Tensor, stops: Stops) -> bool:
        if not stops:
            return False
        text = str(self._tokenizer.decode(row[self._width :], skip_special_tokens=True))
        return any(stop in text for stop in stops)
