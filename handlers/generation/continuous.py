"""The texts of one request, generated beside those of other requests."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from queue import Empty, SimpleQueue

import numpy as np
from transformers import GenerationConfig, PreTrainedTokenizerBase

from handlers.batching.rows import RowOutcome
from handlers.errors import OutOfTime, RequestError, attempt
from handlers.generation.decoding import WITH_SPECIAL_TOKENS, IncrementalDecoder
from handlers.generation.generator import Prompt, end_tokens
from handlers.generation.logits import TokenScores
from handlers.generation.scheduler import ContinuousModel, NewTokens
from handlers.generation.stopping import Continuation, GeneratedText
from handlers.runtime.deadline import NO_DEADLINE, Deadline
from handlers.telemetry.meter import Meter

# How long a request that nothing is sent to waits before it looks at its deadline, in seconds.
PATIENCE = 0.1

Inbox = SimpleQueue[tuple["RunningText", NewTokens]]


class RunningText:
    """One sequence of a prompt, or all beams of a search, while the engine generates it.

    Args:
        prompt: the prompt.
        continuation: follows the sequences after it.
    """

    def __init__(self, prompt: Prompt, continuation: Continuation) -> None:
        self._prompt, self._continuation = prompt, continuation
        self._is_read = (
            bool(continuation.stops) or prompt.is_streamed or prompt.parameters.records_tokens
        )
        self._text = continuation.start()
        self.sequences: list[list[int]] = [[]]
        self.error: RequestError | None = None
        self.finished = False
        self.cancel: Callable[[], None] = lambda: None

    def add(self, new: NewTokens) -> None:
        """Add new tokens, send their text, and end the text where it has a stop string."""
        if self.finished:
            return
        self.error, self.finished = new.error, new.finished or new.error is not None
        if len(new.sequences) == 1:
            self.sequences[0].extend(new.sequences[0])
            self._read(new.sequences[0], new.logprobs)
        elif new.sequences:
            self.sequences = [list(each) for each in new.sequences]

    def texts(self) -> list[GeneratedText]:
        """Return the text of each sequence."""
        if self._is_read and self._text.tokens:
            return [self._text]
        return [self._continuation.read(each) for each in self.sequences]

    def _read(self, tokens: Sequence[int], logprobs: Sequence[float]) -> None:
        if not self._is_read:
            return
        scores = [TokenScores(logprob) for logprob in logprobs] or repeat(None)
        for token, score in zip(tokens, scores, strict=False):
            self._text = self._continuation.add(self._text, token, score)
        if self._prompt.is_streamed and self._prompt.stream:
            self._continuation.emit(self._text, self._prompt.stream)
        if self._text.finish_reason and not self.finished:
            self.finished = True
            self.cancel()


@dataclass(frozen=True)
class ContinuousGenerator:
    """Generates the texts of one request with an engine that runs those of others, too.

    Attributes:
        model: the engine.
        tokenizer: its tokenizer.
        base: the checkpoint's generation config.
        meter: counts tokens, and measures the time to the first token and between tokens.
        deadline: the time limit of the request.
    """

    model: ContinuousModel
    tokenizer: PreTrainedTokenizerBase
    base: GenerationConfig
    meter: Meter
    deadline: Deadline = NO_DEADLINE

    def generate(self, prompts: Sequence[Prompt]) -> list[RowOutcome]:
        """Return the new tokens and the texts of each prompt, or its error.

        `sequences` has the tokens without the end token, and `texts` the finished texts; both have
        an entry for each sequence.
        """
        inbox: Inbox = SimpleQueue()
        plain = IncrementalDecoder(self.tokenizer)
        # A special token may begin a tool call.
        special = IncrementalDecoder(self.tokenizer, WITH_SPECIAL_TOKENS)
        started = [
            attempt(self._start, prompt, special if prompt.syntax else plain, inbox)
            for prompt in prompts
        ]
        running = [text for texts in started if isinstance(texts, list) for text in texts]
        try:
            self._follow(running, inbox)
        finally:
            for text in running:
                if not text.finished:
                    text.cancel()
        return [
            texts if isinstance(texts, RequestError) else self._outcome(prompt, texts)
            for prompt, texts in zip(prompts, started, strict=True)
        ]

    def _start(
        self, prompt: Prompt, decoder: IncrementalDecoder, inbox: Inbox
    ) -> list[RunningText]:
        """Start each sequence of a prompt; a beam search has all of them in one."""
        parameters = prompt.parameters
        copies = 1 if parameters.num_beams > 1 else parameters.num_return_sequences
        texts: list[RunningText] = []
        try:
            for number in range(copies):
                text = RunningText(prompt, self._continuation(prompt, decoder))
                receive = partial(_put, inbox, text)
                text.cancel = self.model.start(prompt, number, receive)
                texts.append(text)
        except RequestError:
            for text in texts:
                text.cancel()
            raise
        return texts

    def _follow(self, running: Sequence[RunningText], inbox: Inbox) -> None:
        """Pass on what the engine sends until every text is finished, or the time is over."""
        clock = _TokenClock(self.meter)
        while not all(text.finished for text in running) and not self.deadline.passed:
            try:
                text, new = inbox.get(timeout=PATIENCE)
            except Empty:
                continue
            clock.tick()
            text.add(new)

    def _continuation(self, prompt: Prompt, decoder: IncrementalDecoder) -> Continuation:
        return Continuation(
            decoder,
            prompt.features["input_ids"],
            prompt.parameters.stop,
            end_tokens(self.base),
            prompt.new_tokens,
            prompt.syntax,
        )

    def _outcome(self, prompt: Prompt, running: Sequence[RunningText]) -> RowOutcome:
        error = next((text.error for text in running if text.error), None)
        if error:
            return error
        if not all(text.finished for text in running):
            return OutOfTime()
        texts = [each for text in running for each in text.texts()]
        tokens = [ids for text in running for ids in text.sequences]
        new = sum(text.tokens for text in texts)
        self.meter.count(tokens=len(prompt) + new, slots=len(prompt) + new)
        sequences = [
            np.array(ids[: text.tokens - (text.finish_reason == "eos_token")], dtype=np.int64)
            for ids, text in zip(tokens, texts, strict=True)
        ]
        return {"sequences": sequences, "texts": texts}


class _TokenClock:
    """Measures the time to the first token of a request, and between two messages.

    Args:
        meter: takes the times.
    """

    def __init__(self, meter: Meter) -> None:
        self._meter, self._last, self._count = meter, time.perf_counter(), 0

    def tick(self) -> None:
        """Note that tokens have come."""
        now = time.perf_counter()
        if self._count == 0:
            self._meter.seconds["first_token"] = now - self._last
        else:
            mean = self._meter.seconds["between_tokens"]
            self._meter.seconds["between_tokens"] = mean + (now - self._last - mean) / self._count
        self._last, self._count = now, self._count + 1


def _put(inbox: Inbox, text: RunningText, new: NewTokens) -> None:
    inbox.put((text, new))
