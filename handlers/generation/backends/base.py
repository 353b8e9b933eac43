"""The interface of an engine that runs texts side by side, each from its own start to its end."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from handlers.errors import Overloaded, RequestError, RequestTooLarge
from handlers.generation.generator import Prompt

Result = TypeVar("Result")


@dataclass(frozen=True)
class NewTokens:
    """What an engine has generated for a text since its last message.

    Attributes:
        sequences: new tokens of each sequence; one, or the beams of a search at its end.
        logprobs: the log probability of each token of one sequence, where the prompt asks for them.
        top_logprobs: ids and log probabilities of the most likely tokens in the place of each one,
            the most likely first, where the prompt asks for them.
        finished: whether these are the last.
        error: why the text cannot be generated.
    """

    sequences: Sequence[Sequence[int]] = ()
    logprobs: Sequence[float] = ()
    top_logprobs: Sequence[Sequence[tuple[int, float]]] = ()
    finished: bool = False
    error: RequestError | None = None


Receive = Callable[[NewTokens], None]


class GenerationBackend(ABC):
    """An engine that lets a text join the running ones at the next step.

    Attributes:
        max_texts: how many texts may run or wait.
    """

    max_texts: int = sys.maxsize

    @abstractmethod
    def start(self, prompt: Prompt, number: int, receive: Receive) -> Callable[[], None]:
        """Start a text.

        Args:
            prompt: the prompt.
            number: which of the prompt's sequences it is; with a seed, each has another. The first
                one starts only where all others may, too.
            receive: takes its tokens, in a thread of the engine; it must return soon. They come as
                they are generated if `prompt.is_followed`, and may come at the end otherwise; the
                first call may have none.

        Returns:
            A function that ends the text before its end.

        Raises:
            RequestError: the engine cannot do what the prompt asks, or has too much to do.
        """


def check_load(texts: int, limit: int, new: int = 1) -> None:
    """Check that further texts may wait.

    Args:
        texts: how many are running or waiting.
        limit: how many may be.
        new: how many there are to come.

    Raises:
        Overloaded: there would be more.
    """
    if texts + new > limit:
        raise Overloaded(f"{texts:,} texts are running or waiting; send the request again later.")


def as_too_large(outcome: Result | RequestError, texts: int, limit: int) -> Result | RequestError:
    """Return what became of one of some prompts; an error that no later time mends says so.

    Args:
        outcome: the text to come, or an error.
        texts: the number of texts of all prompts that came together.
        limit: how many may run or wait.
    """
    if texts <= limit or not isinstance(outcome, Overloaded):
        return outcome
    return RequestTooLarge(
        f"the request asks for {texts:,} texts, and {limit:,} may run or wait (max_num_seqs and"
        " max_waiting); send fewer prompts at once, or a smaller n."
    )
