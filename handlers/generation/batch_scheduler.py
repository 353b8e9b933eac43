"""Batches of `generate` for the prompts of several requests.

`continuousBatching` has them for what `backends/transformers_paged.py` does not generate, which
admits prompts between two tokens. One thread takes the oldest waiting prompt, together with all
that may share its batch. The outcome of a prompt is set as soon as its sequences have ended. All
parameters are supported; new prompts wait for the running batch.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from transformers import GenerationConfig

from ..batching.rows import RowOutcome
from ..errors import DeadlineExceeded, InternalError, RequestError, attempt, log_bug
from ..model import Model, ModelCapabilities
from ..process.deadline import NO_DEADLINE, PATIENCE, Deadline
from ..process.threads import OneThread
from ..telemetry.metrics import Meter
from .backends.base import as_too_large, check_capacity
from .generator import Generator, Prompt

Result = TypeVar("Result")


class BatchScheduler(Model):
    """A model whose requests share batches of `generate`.

    Args:
        model: the model, after the trial of its batches.
        max_running: the maximum number of sequences in a batch.
        max_waiting: the maximum number of sequences that wait.
        others: counts the sequences that run or wait elsewhere, which the limit includes.
    """

    def __init__(
        self,
        model: Model,
        max_running: int,
        max_waiting: int,
        others: Callable[[], int] = lambda: 0,
    ) -> None:
        self._model, self._others = model, others
        self.padded_limit, self.runs_alone = model.padded_limit, model.runs_alone
        self.capabilities = ModelCapabilities(
            runs_concurrently=True,
            full_precision=model.capabilities.full_precision,
            supports_prompt_lookup=model.capabilities.supports_prompt_lookup,
        )
        self.capacity, self._admitting = max_running + max_waiting, threading.Lock()
        self._queue, self._one_thread = _Queue(max_running), OneThread()
        threading.Thread(target=self._queue.run, name="generate", daemon=True).start()
        weakref.finalize(self, self._queue.close)

    def generate_prompts(
        self, generator: Generator, prompts: Sequence[Prompt], budget: int
    ) -> list[RowOutcome]:
        """Return the outcome of each prompt, generated in batches with prompts of other requests.

        Args:
            generator: has this model, and the meter and the deadline of the request.
            prompts: the prompts.
            budget: the maximum number of tokens in a batch.
        """
        sequences = sum(prompt.sequences for prompt in prompts)
        added = [
            as_too_large(attempt(self._add, generator, prompt, budget), sequences, self.capacity)
            for prompt in prompts
        ]
        futures = [each for each in added if isinstance(each, Future)]
        _wait(futures, generator.deadline)
        outcomes = [each if isinstance(each, RequestError) else _outcome(each) for each in added]
        for prompt, outcome in zip(prompts, outcomes, strict=True):
            if not isinstance(outcome, RequestError):
                tokens = len(prompt) + sum(text.tokens for text in outcome["texts"])
                generator.meter.count(tokens=tokens, slots=tokens)
        return outcomes

    def run_exclusively(
        self, function: Callable[[], Result], deadline: Deadline = NO_DEADLINE
    ) -> Result:
        future = self._queue.call(function)
        _wait([future], deadline)
        if future.cancelled():
            raise DeadlineExceeded
        # A function that has begun ends by itself at its deadline.
        return future.result()

    @contextmanager
    def admitted(self, new: int = 1) -> Iterator[None]:
        """Start further sequences within the block.

        Raises:
            Overloaded: too many sequences are running or waiting.
        """
        with self._admitting:
            load = self.load_metrics
            own = int(load["running_texts"] + load["waiting_texts"])
            check_capacity(own + self._others(), self.capacity, new)
            yield

    @property
    def load_metrics(self) -> Mapping[str, float]:
        return self._queue.load_metrics

    @property
    def embeddings(self) -> Sequence[torch.nn.Module]:
        return self._model.embeddings

    def forward(self, batch: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        with self._one_thread:
            return self._model.forward(batch)

    def with_adapters(self, adapters: Sequence[str | None]) -> AbstractContextManager[None]:
        return self._model.with_adapters(adapters)

    def read_prefix(self, ids: Sequence[int]) -> Any:
        with self._one_thread:
            return self._model.read_prefix(ids)

    def last_scores(
        self, batch: Mapping[str, torch.Tensor], lengths: Sequence[int], prefix: Any = None
    ) -> np.ndarray[Any, np.dtype[np.float32]]:
        with self._one_thread:
            return self._model.last_scores(batch, lengths, prefix)

    def forward_with_gradients(
        self, batch: Mapping[str, torch.Tensor]
    ) -> Mapping[str, torch.Tensor]:
        with self._one_thread:
            return self._model.forward_with_gradients(batch)

    def generate(
        self, batch: Mapping[str, torch.Tensor], config: GenerationConfig, **extra: Any
    ) -> torch.Tensor:
        with self._one_thread:
            return self._model.generate(batch, config, **extra)

    def _add(self, generator: Generator, prompt: Prompt, budget: int) -> Future[RowOutcome]:
        prompt = prompt.with_compiled_grammar()
        with self.admitted(prompt.sequences):
            return self._queue.add(generator, prompt, budget)


@dataclass(frozen=True, eq=False)
class _Waiting:
    generator: Generator
    prompt: Prompt
    budget: int


@dataclass(frozen=True, eq=False)
class _Call:
    """A function that waits to be called while no batch runs."""

    function: Callable[[], Any]
    future: Future[Any]

    def run(self) -> None:
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            self.future.set_result(self.function())
        except BaseException as error:  # noqa: BLE001 - the caller raises it
            self.future.set_exception(error)


class _Queue:
    """Prompts and calls that wait, and the batch that runs.

    Only waiting prompts and calls refer to the model, so that the thread ends with the model.

    Args:
        max_running: the maximum number of sequences in a batch.
    """

    def __init__(self, max_running: int) -> None:
        self._max_running = max_running
        self._changed = threading.Condition()
        self._waiting: list[_Waiting | _Call] = []
        self._running: list[Prompt] = []
        self._closed = False

    @property
    def load_metrics(self) -> Mapping[str, int]:
        with self._changed:
            waiting = [each.prompt for each in self._waiting if isinstance(each, _Waiting)]
            return {
                "running_texts": _sequences(self._running),
                "waiting_texts": _sequences(waiting),
            }

    def add(self, generator: Generator, prompt: Prompt, budget: int) -> Future[RowOutcome]:
        """Queue a prompt, and return its future outcome."""
        future = Future[RowOutcome]()
        self._append(_Waiting(generator, replace(prompt, future=future), budget))
        return future

    def call(self, function: Callable[[], Result]) -> Future[Result]:
        """Queue a function, and return its future result."""
        future = Future[Result]()
        self._append(_Call(function, future))
        return future

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def run(self) -> None:
        """Run waiting prompts and calls until the queue is closed."""
        while self._wait():
            self._run_next()

    def _append(self, waiting: _Waiting | _Call) -> None:
        with self._changed:
            self._waiting.append(waiting)
            self._changed.notify()

    def _wait(self) -> bool:
        """Wait for a prompt or a call; return False once the queue is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or bool(self._waiting))
            return not self._closed

    def _run_next(self) -> None:
        with self._changed:
            self._waiting = [each for each in self._waiting if not _is_cancelled(each)]
            first = next(iter(self._waiting), None)
            if isinstance(first, _Call):
                self._waiting.remove(first)
            elif first:
                self._running = self._batch_of(first)
        if isinstance(first, _Call):
            first.run()
        elif first and self._running:
            self._generate(first.generator)

    def _batch_of(self, first: _Waiting) -> list[Prompt]:
        """Remove the oldest prompt and those that share its batch; the oldest alone on an error."""
        waiting = [each for each in self._waiting if isinstance(each, _Waiting)]
        try:
            return self._take_batch(first, waiting)
        except Exception as error:  # noqa: BLE001 - the others wait for this thread
            log_bug(error)
            self._waiting.remove(first)
            return [first.prompt]

    def _take_batch(self, first: _Waiting, waiting: Sequence[_Waiting]) -> list[Prompt]:
        """Remove the oldest prompt and those that share its batch, the older ones first."""
        batches = first.generator.batches([each.prompt for each in waiting], first.budget)
        (numbers,) = (batch for batch in batches if 0 in batch)
        chosen: list[_Waiting] = []
        for number in sorted(numbers):
            prompts = [each.prompt for each in (*chosen, waiting[number])]
            if chosen and _sequences(prompts) > self._max_running:
                break
            chosen.append(waiting[number])
        self._waiting = [each for each in self._waiting if each not in chosen]
        return [each.prompt for each in chosen]

    def _generate(self, generator: Generator) -> None:
        try:
            own = replace(generator, meter=Meter(), deadline=NO_DEADLINE)
            for prompt, outcome in zip(
                self._running, own.generate_batch(self._running), strict=True
            ):
                prompt.resolve(outcome)
        except BaseException as error:  # noqa: BLE001 - nobody may wait for ever
            for prompt in self._running:
                prompt.resolve(InternalError(error))
        finally:
            self._running = []


def _sequences(prompts: Sequence[Prompt]) -> int:
    """Return the number of sequences of the prompts that have no outcome."""
    futures = ((prompt, prompt.future) for prompt in prompts)
    return sum(prompt.sequences for prompt, future in futures if future and not future.done())


def _is_cancelled(waiting: _Waiting | _Call) -> bool:
    future = waiting.prompt.future if isinstance(waiting, _Waiting) else waiting.future
    return future is not None and future.cancelled()


def _wait(futures: Sequence[Future[Any]], deadline: Deadline) -> None:
    """Wait until each has a result; at the deadline, cancel those without one."""
    waiting = set(futures)
    while waiting and not deadline.passed:
        waiting = wait(waiting, PATIENCE).not_done
    for future in waiting:
        future.cancel()


def _outcome(future: Future[RowOutcome]) -> RowOutcome:
    try:
        return future.result()
    except CancelledError:
        return DeadlineExceeded()
