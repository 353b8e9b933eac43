"""The state of one request in the engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from handlers.batching.rows import Outputs
from handlers.schemas.explanation_parameters import ExplanationParameters
from handlers.schemas.request import StepStream, TextStream, TokenCount

DEFAULT_SETTINGS = ExplanationParameters()


@dataclass(frozen=True)
class Job:
    """A parsed request, its rows and their outputs.

    Attributes:
        query: the request as the task parsed it.
        settings: the explanation parameters, as the explanation target declares them; unused for
            predictions.
        rows: the encoded rows.
        outputs: the model outputs of each row.
        stream: receives generated text as it is produced, or the steps of an image; None without
            streaming.
        owner: the number of the HTTP request that it belongs to.
        token_count: receives the number of tokens in the rows; None where nobody asks.
    """

    query: Any
    settings: Any = DEFAULT_SETTINGS
    rows: Sequence[Any] = ()
    outputs: Sequence[Outputs] = ()
    stream: TextStream | StepStream | None = None
    owner: int = 0
    token_count: TokenCount | None = None

    @property
    def streaming_started(self) -> bool:
        """Whether part of the response was sent, so that the job cannot be run again."""
        return self.stream is not None and self.stream.has_begun
