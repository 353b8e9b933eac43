"""Greedy sequences by transformers' continuous batching, and all others in batches of `generate`.

The manager of transformers 5.5 has one setting of sampling for all sequences, and its logits
processors see the tokens of one step only. So it gets the sequences that need neither, which join
the running ones at once. Source: `transformers/generation/continuous_batching`.
"""

from __future__ import annotations

import copy
import logging
import math
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any

import torch
from tokenizers import Encoding
from transformers import GenerationConfig, PreTrainedModel

from ...batching.rows import RowOutcome
from ...checkpoints.model_spec import ModelSpec
from ...compat.transformers import create_manager, is_stopping
from ...compat.transformers_paged_attention import attend_text_by_text
from ...errors import EngineFailed, RequestError, classify
from ...model import Model
from ...process.deadline import PATIENCE
from ..batch_scheduler import BatchScheduler
from ..checkpoint_defaults import FILE_SETTINGS
from ..generator import Generator, Prompt, end_tokens
from ..parameters import GenerationParameters
from .base import BLOCK as CACHE_BLOCK
from .base import (
    SAMPLING_PARAMETERS,
    GenerationBackend,
    NewTokens,
    Receive,
    cache_blocks,
    run_sequences,
)
from .prefixes import waits_for_prefix

logger = logging.getLogger(__name__)

# Tokens in a block of the cache, and tokens of all sequences in one step.
BLOCK = 16
STEP_TOKENS = 256
# The values with which a greedy text is the argmax of the model's own logits.
NEUTRAL: Mapping[str, Any] = {
    **{name: spec.neutral for name, spec in SAMPLING_PARAMETERS.items() if spec.needs is None},
    **{name: setting.neutral for name, setting in FILE_SETTINGS.items()},
}
TRIAL_TOKENS = 4
TRIAL_SECONDS = 60.0
PRECISIONS = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "f32"}


@dataclass(frozen=True)
class PagedSettings:
    """The sizes of the scheduler.

    Attributes:
        blocks: the blocks of the cache.
        max_running: the maximum number of running sequences.
        max_waiting: the maximum number of waiting sequences.
        step_tokens: the number of tokens of all sequences in one step, at least `max_running`. What
            the running sequences leave is for parts of prompts.
        shares_prefixes: whether prompts that begin alike share cached tokens.
    """

    blocks: int
    max_running: int
    max_waiting: int
    step_tokens: int = STEP_TOKENS
    shares_prefixes: bool = False


class PagedModel(BatchScheduler, GenerationBackend):
    """A model whose greedy sequences join the running ones at the next step.

    Args:
        model: the model, after the trial of its batches.
        module: its module.
        generation_config: the checkpoint's generation config.
        settings: the sizes of the scheduler.
    """

    def __init__(
        self,
        model: Model,
        module: PreTrainedModel,
        generation_config: GenerationConfig,
        settings: PagedSettings,
    ) -> None:
        super().__init__(model, settings.max_running, settings.max_waiting)
        self._generation_config, self._capacity = generation_config, settings.blocks * BLOCK
        self._scheduler = PagedScheduler(_with_shared_weights(module), generation_config, settings)
        weakref.finalize(self, self._scheduler.close)

    def generate_prompts(
        self, generator: Generator, prompts: Sequence[Prompt], budget: int
    ) -> list[RowOutcome]:
        if not all(map(self._is_greedy, prompts)):
            return super().generate_prompts(generator, prompts, budget)
        return run_sequences(self, generator, prompts)

    def start(self, prompt: Prompt, number: int, receive: Receive) -> Callable[[], None]:
        with self.admitted(prompt.backend_sequences - number):
            return self._scheduler.start(prompt, receive)

    def agrees(self, ids: list[int]) -> bool:
        """Return whether the scheduler and `generate` generate the same tokens; True if inexact."""
        inbox: SimpleQueue[NewTokens] = SimpleQueue()
        features = {"input_ids": ids}
        prompt = Prompt(features, Encoding(), GenerationParameters(), TRIAL_TOKENS)
        self._scheduler.start(prompt, inbox.put)
        found: list[int] = []
        finished = False
        while not finished:
            new = inbox.get(timeout=TRIAL_SECONDS)
            if new.error:
                raise new.error
            found += new.sequences[0]
            finished = new.finished
        batch = {"input_ids": torch.tensor([ids]), "attention_mask": torch.ones(1, len(ids))}
        ends = sorted(end_tokens(self._generation_config)) or None
        config = GenerationConfig(
            max_new_tokens=TRIAL_TOKENS, do_sample=False, eos_token_id=ends, pad_token_id=0
        )
        expected = self.generate(batch, config)[0, len(ids) :].tolist()
        return found == expected or not self.capabilities.full_precision

    @property
    def load_metrics(self) -> Mapping[str, float]:
        batches = super().load_metrics
        own = self._scheduler.load_metrics.items()
        return {name: value + batches.get(name, 0) for name, value in own}

    def _is_greedy(self, prompt: Prompt) -> bool:
        """Return whether each token is the most likely one by the model's own logits."""
        parameters = prompt.parameters
        given = {
            **self._generation_config.to_dict(),
            **parameters.for_generate,
            **parameters.for_processors,
        }
        changed = [
            name for name, neutral in NEUTRAL.items() if given.get(name) not in (None, neutral)
        ]
        other_ends = prompt.end_tokens(self._generation_config) != end_tokens(
            self._generation_config
        )
        fits = len(prompt) + prompt.new_tokens <= self._capacity
        special = parameters.returns_logprobs or other_ends or prompt.grammar or prompt.syntax
        return fits and not (changed or special)


@dataclass(eq=False)
class _Sequence:
    """A sequence.

    Attributes:
        ids: the tokens of its prompt.
        blocks: the blocks that it may need.
        seen: the number of its new tokens that were passed on.
    """

    prompt: Prompt
    ids: Sequence[int]
    receive: Receive
    number: str
    blocks: int
    seen: int = 0


class PagedScheduler:
    """The manager of transformers, and the sequences that run in it or wait for it.

    A sequence starts when the cache has blocks for all of its tokens: the manager would otherwise
    interrupt others.

    Args:
        module: a module that nothing else runs, because the manager changes its attention.
        generation_config: the checkpoint's generation config.
        settings: the sizes.
    """

    def __init__(
        self, module: PreTrainedModel, generation_config: GenerationConfig, settings: PagedSettings
    ) -> None:
        self._settings = settings
        self._manager = create_manager(
            module,
            sorted(end_tokens(generation_config)),
            block_size=BLOCK,
            blocks=settings.blocks,
            max_batch_tokens=max(settings.step_tokens, settings.max_running),
            shares_blocks=settings.shares_prefixes,
        )
        attend_text_by_text(module)
        self._lock = threading.RLock()
        self._started = 0
        self._running: dict[str, _Sequence] = {}
        self._waiting: deque[_Sequence] = deque()
        self._failed = self._closed = False
        # The thread of the manager is a daemon like the one that starts it.
        threading.Thread(target=self._run, name="continuous-batching", daemon=True).start()

    @property
    def load_metrics(self) -> Mapping[str, float]:
        """The numbers of running and waiting sequences, and the percentage of reserved blocks."""
        with self._lock:
            return {
                "running_texts": len(self._running),
                "waiting_texts": len(self._waiting),
                "cache_usage": 100 * self._reserved / self._settings.blocks,
            }

    def start(self, prompt: Prompt, receive: Receive) -> Callable[[], None]:
        """Start a sequence, and return a function that cancels it.

        Raises:
            EngineFailed: the manager has ended.
        """
        with self._lock:
            if self._failed:
                raise EngineFailed
            self._started += 1
            blocks = math.ceil((len(prompt) + prompt.new_tokens) / BLOCK)
            ids = [int(token) for token in prompt.features["input_ids"]]
            sequence = _Sequence(prompt, ids, receive, str(self._started), blocks)
            self._waiting.append(sequence)
            self._start_waiting()
        return partial(self._cancel, sequence)

    def close(self) -> None:
        """End the threads."""
        self._closed = True

    @property
    def _reserved(self) -> int:
        return sum(sequence.blocks for sequence in self._running.values())

    def _start_waiting(self) -> None:
        for sequence in list(self._waiting):
            if len(self._running) == self._settings.max_running:
                return
            if self._waits_for_prefix(sequence):
                continue
            if self._reserved + sequence.blocks > self._settings.blocks:
                return
            self._waiting.remove(sequence)
            self._running[sequence.number] = sequence
            self._manager.add_request(
                sequence.ids,
                sequence.number,
                max_new_tokens=sequence.prompt.new_tokens,
                streaming=True,
            )

    def _waits_for_prefix(self, sequence: _Sequence) -> bool:
        if not self._settings.shares_prefixes:
            return False
        read = (each.ids for each in self._running.values() if not each.seen)
        return waits_for_prefix(sequence.ids, read)

    def _cancel(self, sequence: _Sequence) -> None:
        with self._lock:
            if self._running.pop(sequence.number, None):
                self._manager.cancel_request(sequence.number)
                self._start_waiting()
            elif sequence in self._waiting:
                self._waiting.remove(sequence)

    def _run(self) -> None:
        """Pass tokens on until the scheduler is closed, or the manager fails."""
        self._manager.start()
        try:
            self._pass_all_on()
        finally:
            with self._lock:
                for number in self._running:
                    self._manager.cancel_request(number)
            if not self._closed:
                self._fail()
            self._manager.stop(block=True)

    def _pass_all_on(self) -> None:
        while not self._closed:
            output = self._manager.get_result(timeout=PATIENCE)
            if output is not None:
                self._pass_on(output)
            elif not self._manager.is_running():
                return

    def _pass_on(self, output: Any) -> None:
        with self._lock:
            sequence = self._running.get(output.request_id)
            if sequence is None:
                return
            new = list(output.generated_tokens[sequence.seen :])
            sequence.seen += len(new)
            finished, failed = output.is_finished(), output.error is not None
            is_first = sequence.seen == len(new)
            if finished or failed:
                del self._running[sequence.number]
            if finished or failed or is_first:
                self._start_waiting()
        error = self._error(output.error) if failed else None
        sequence.receive(NewTokens([new], finished=finished, error=error))

    def _error(self, message: str) -> RequestError:
        """Return the error of a sequence; the manager continues, unless it has stopped itself."""
        if is_stopping(self._manager):
            return EngineFailed()
        logger.error("transformers' continuous batching failed at a sequence")
        return classify(RuntimeError(message))

    def _fail(self) -> None:
        with self._lock:
            self._failed = True
            sequences = [*self._running.values(), *self._waiting]
            self._running, self._waiting = {}, deque()
        for sequence in sequences:
            sequence.receive(NewTokens(error=EngineFailed()))


def as_paged(model: Model, module: PreTrainedModel, spec: ModelSpec) -> PagedModel | None:
    """Return a model with paged attention; None if the manager and `generate` differ.

    Args:
        model: the model, after the trial of its batches.
        module: its module.
        spec: its specification.
    """
    handler, checkpoint = spec.config.handler, spec.checkpoint
    blocks = cache_blocks(spec, PRECISIONS[module.dtype], module.device) * CACHE_BLOCK // BLOCK
    settings = PagedSettings(
        blocks,
        handler.max_num_seqs,
        handler.max_waiting,
        handler.max_num_batched_tokens or STEP_TOKENS,
        shares_prefixes=bool(handler.enable_prefix_caching),
    )
    rows = checkpoint.probe_rows(blocks * BLOCK // 2).batches[0]
    try:
        paged = PagedModel(model, module, checkpoint.generation_config, settings)
        if all(paged.agrees(row.features["input_ids"]) for row in rows):
            return paged
        reason = "other texts"
    except Exception as error:  # noqa: BLE001 - each family refuses it in its own way
        reason = type(error).__name__
    logger.info("%s runs in batches of generate (%s)", checkpoint.architecture, reason)
    return None


def _with_shared_weights(module: PreTrainedModel) -> PreTrainedModel:
    """Return a copy of a module that shares its weights in memory."""
    copied: PreTrainedModel = copy.deepcopy(
        module, {id(tensor): tensor for tensor in module.parameters()}
    )
    vars(copied).pop("forward", None)  # A compiled one runs the other module.
    return copied
