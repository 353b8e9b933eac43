"""The interface of an engine that runs texts side by side, each from its own start to its end."""

from __future__ import annotations

import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from statistics import fmean
from typing import TypeVar

import numpy as np
from transformers import GenerationConfig, PreTrainedTokenizerBase

from handlers.batching.rows import RowOutcome
from handlers.errors import DeadlineExceeded, Overloaded, RequestError, RequestTooLarge, attempt
from handlers.generation.decoding import IncrementalDecoder, decoders_of
from handlers.generation.generator import Generator, Prompt
from handlers.generation.logits_processors import MIN_LOGPROB, TokenScores
from handlers.generation.stopping import GenerationState, StopTracker
from handlers.model import Model
from handlers.process.deadline import NO_DEADLINE, PATIENCE, Deadline
from handlers.telemetry.metrics import Meter

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


class TokenClock:
    """Measures when the tokens of a text come."""

    def __init__(self) -> None:
        self._start = self._first = self._last = time.perf_counter()
        self._tokens = 0

    def tick(self, tokens: int) -> None:
        """Note that tokens have come, or that the first of them has."""
        self._last = time.perf_counter()
        if self._first == self._start:
            self._first = self._last
        self._tokens += tokens

    @property
    def to_first(self) -> float:
        """The seconds to the first token."""
        return self._first - self._start

    @property
    def between(self) -> float:
        """The mean of the seconds between two tokens."""
        return (self._last - self._first) / max(1, self._tokens - 1)


class RunningSequence:
    """One sequence of a prompt, or all beams of a search, while the engine generates it.

    Args:
        prompt: the prompt.
        number: which of the prompt's sequences it is.
        tracker: follows the sequences after it.
        changed: is set at the end of the text.
        deadline: the time limit of the request, whose client may have gone as well.
    """

    def __init__(
        self,
        prompt: Prompt,
        number: int,
        tracker: StopTracker,
        changed: threading.Event,
        deadline: Deadline,
    ) -> None:
        self._prompt, self._number, self._tracker = prompt, number, tracker
        self._stream = prompt.stream_of(number)
        self._changed, self._deadline = changed, deadline
        self._is_read = prompt.is_followed or prompt.parameters.records_tokens
        self._text = tracker.start()
        self._lock = threading.Lock()
        self._cancel: Callable[[], None] | None = None
        self.sequences: list[list[int]] = [[]]
        self.clock = TokenClock()
        self.error: Exception | None = None
        self.finished = False

    def start(self, engine: GenerationBackend) -> None:
        """Start the text.

        Args:
            engine: generates it.

        Raises:
            RequestError: the engine cannot do what the prompt asks, or has too much to do.
        """
        cancel = engine.start(self._prompt, self._number, self.receive)
        with self._lock:
            self._cancel = cancel
            if self.finished:  # It may have had a stop string before.
                cancel()

    def receive(self, new: NewTokens) -> None:
        """Add new tokens, send their text, and end the text where it has a stop string.

        The engine calls it in its own thread: to wake a thread for each text after each step would
        take more time.
        """
        if self._deadline.passed:
            self.cancel()
        with self._lock:
            if self.finished:
                return
            self.clock.tick(max(map(len, new.sequences), default=0))
            try:
                self._add(new)
            except Exception as error:  # noqa: BLE001 - it belongs to this request
                self.error, self.finished = error, True
            if self.finished:
                self._end()

    def cancel(self) -> None:
        """End the text, if it has not ended, for lack of time; nothing of it is sent any more."""
        with self._lock:
            if not self.finished:
                self.error, self.finished = DeadlineExceeded(), True
                self._end()

    def texts(self) -> list[GenerationState]:
        """Return the text of each sequence."""
        if self._is_read and self._text.tokens:
            return [self._text]
        return [self._tracker.read(each) for each in self.sequences]

    def _add(self, new: NewTokens) -> None:
        self.error, self.finished = new.error, new.finished or new.error is not None
        if len(new.sequences) == 1:
            self.sequences[0].extend(new.sequences[0])
            # An engine may have log probabilities that the request does not ask for.
            recorded = self._prompt.parameters.records_tokens
            self._read(new.sequences[0], _scores(new) if recorded else ())
        elif new.sequences:
            self.sequences = [list(each) for each in new.sequences]

    def _read(self, tokens: Sequence[int], scores: Sequence[TokenScores]) -> None:
        if not self._is_read:
            return
        for token, score in zip(tokens, scores or repeat(None), strict=False):
            self._text = self._tracker.add(self._text, token, score)
        if self._stream:
            self._tracker.emit(self._text, self._stream)
            self._tracker.end(self._text, self._stream)
        if self._text.finish_reason:
            self.finished = True

    def _end(self) -> None:
        """Tell the engine, which may have ended it, and the thread of the request."""
        if self._cancel:
            self._cancel()
        self._changed.set()


@dataclass(frozen=True)
class ContinuousGenerator:
    """Generates the texts of one request with an engine that runs those of others, too.

    Attributes:
        engine: the engine.
        tokenizer: its tokenizer.
        base: the checkpoint's generation config.
        meter: counts tokens, and measures the time to the first token and between tokens.
        deadline: the time limit of the request.
    """

    engine: GenerationBackend
    tokenizer: PreTrainedTokenizerBase
    base: GenerationConfig
    meter: Meter
    deadline: Deadline = NO_DEADLINE

    def generate(self, prompts: Sequence[Prompt]) -> list[RowOutcome]:
        """Return the new tokens and the texts of each prompt, or its error.

        `sequences` has the tokens without the end token, and `texts` the finished texts; both have
        an entry for each sequence.
        """
        changed = threading.Event()
        decoders = decoders_of(self.tokenizer)
        started = [attempt(self._start, prompt, decoders, changed) for prompt in prompts]
        texts = sum(prompt.engine_texts for prompt in prompts)
        started = [as_too_large(each, texts, self.engine.max_texts) for each in started]
        running = [text for texts in started if isinstance(texts, list) for text in texts]
        self._wait(running, changed)
        for text in running:
            text.cancel()
        _report_times([text.clock for text in running], self.meter)
        return [
            texts if isinstance(texts, RequestError) else self._outcome(prompt, texts)
            for prompt, texts in zip(prompts, started, strict=True)
        ]

    def _start(
        self,
        prompt: Prompt,
        decoders: Mapping[bool, IncrementalDecoder],
        changed: threading.Event,
    ) -> list[RunningSequence]:
        """Start each sequence of a prompt; a beam search has all of them in one."""
        texts: list[RunningSequence] = []
        try:
            for number in range(prompt.engine_texts):
                tracker = prompt.stop_tracker(decoders, self.base, prompt.features["input_ids"])
                text = RunningSequence(prompt, number, tracker, changed, self.deadline)
                text.start(self.engine)
                texts.append(text)
        except BaseException:
            for text in texts:
                text.cancel()
            raise
        return texts

    def _wait(self, running: Sequence[RunningSequence], changed: threading.Event) -> None:
        """Wait until every text has ended, or the time is over."""
        while not all(text.finished for text in running) and not self.deadline.passed:
            changed.wait(PATIENCE)
            changed.clear()

    def _outcome(self, prompt: Prompt, running: Sequence[RunningSequence]) -> RowOutcome:
        error = next((text.error for text in running if text.error), None)
        if isinstance(error, RequestError):
            return error
        if error:
            raise error
        texts = [each for text in running for each in text.texts()]
        tokens = [ids for text in running for ids in text.sequences]
        new = sum(text.tokens for text in texts)
        self.meter.count(tokens=len(prompt) + new, slots=len(prompt) + new)
        sequences = [
            np.array(ids[: text.tokens - (text.finish_reason == "eos_token")], dtype=np.int64)
            for ids, text in zip(tokens, texts, strict=True)
        ]
        return {"sequences": sequences, "texts": texts}


class ContinuousModel(Model, GenerationBackend, ABC):
    """A model whose engine generates its texts."""

    @property
    def runs_side_by_side(self) -> bool:
        return True

    def generate_prompts(
        self, generator: Generator, prompts: Sequence[Prompt], budget: int
    ) -> list[RowOutcome]:
        """Return the new tokens and the texts of each prompt, or its error.

        Args:
            generator: has the tokenizer, and the meter and the deadline of the request.
            prompts: the prompts.
            budget: the maximum number of tokens in a batch, where there are any.
        """
        own = generator
        return ContinuousGenerator(self, own.tokenizer, own.base, own.meter, own.deadline).generate(
            prompts
        )


def _report_times(clocks: Sequence[TokenClock], meter: Meter) -> None:
    """Report the time to the first token of a request, and the mean time between tokens."""
    if clocks:
        meter.seconds["first_token"] = min(clock.to_first for clock in clocks)
        meter.seconds["between_tokens"] = fmean(clock.between for clock in clocks)


def _scores(new: NewTokens) -> list[TokenScores]:
    """Return the scores of the tokens of one sequence; none where they are not known."""
    tops = new.top_logprobs or repeat(())
    return [
        TokenScores(_finite(logprob), [(token, _finite(each)) for token, each in top])
        for logprob, top in zip(new.logprobs, tops, strict=False)
    ]


def _finite(logprob: float) -> float:
    return max(MIN_LOGPROB, logprob)
