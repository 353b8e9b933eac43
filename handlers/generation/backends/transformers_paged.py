"""Greedy texts by transformers' continuous batching, beside the static groups of all others.

The manager of transformers 5.5 has one setting of sampling for all its texts, and logits processors
that see the tokens of one step only. So it gets the texts that need neither, and they start as soon
as they arrive. Source: `transformers/generation/continuous_batching`.
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

from handlers.batching.rows import RowOutcome
from handlers.checkpoints.model_spec import ModelSpec
from handlers.compat.transformers import create_manager, is_stopping
from handlers.errors import EngineFailed, RequestError, classify
from handlers.generation.backends.base import (
    ContinuousGenerator,
    GenerationBackend,
    NewTokens,
    Receive,
)
from handlers.generation.backends.settings import BLOCK as CACHE_BLOCK
from handlers.generation.backends.settings import CHOOSING, cache_blocks
from handlers.generation.batch_scheduler import BatchScheduler
from handlers.generation.checkpoint_defaults import SETTINGS_OF_FILE
from handlers.generation.generator import Generator, Prompt, end_tokens
from handlers.generation.parameters import GenerationParameters
from handlers.model import Model
from handlers.process.deadline import PATIENCE

logger = logging.getLogger(__name__)

# Tokens in a block of the cache, and of all texts in one step: prompts take several.
BLOCK = 16
STEP_TOKENS = 256
# The values with which a greedy text is that of the model itself.
NEUTRAL: Mapping[str, Any] = {
    **{name: spec.neutral for name, spec in CHOOSING.items() if spec.needs is None},
    **{name: setting.neutral for name, setting in SETTINGS_OF_FILE.items()},
}
TRIAL_TOKENS = 4
TRIAL_SECONDS = 60.0
PRECISIONS = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "f32"}


@dataclass(frozen=True)
class PagedSettings:
    """The settings of a :class:`PagedEngine`.

    Attributes:
        blocks: the number of blocks of the cache.
        max_running: the maximum number of texts that run at once.
        max_waiting: how many texts may wait for others to end.
    """

    blocks: int
    max_running: int
    max_waiting: int


class PagedModel(BatchScheduler, GenerationBackend):
    """A model whose greedy texts join the running ones at the next step.

    Args:
        model: the model, after the trial of its batches.
        module: its module.
        base: the checkpoint's generation config.
        settings: those of the engine.
    """

    def __init__(
        self, model: Model, module: PreTrainedModel, base: GenerationConfig, settings: PagedSettings
    ) -> None:
        super().__init__(model, settings.max_running, settings.max_waiting)
        self._base, self._capacity = base, settings.blocks * BLOCK
        self._engine = PagedEngine(_twin(module), base, settings)
        weakref.finalize(self, self._engine.close)

    def generate_prompts(
        self, generator: Generator, prompts: Sequence[Prompt], budget: int
    ) -> list[RowOutcome]:
        if not all(map(self._is_greedy, prompts)):
            return super().generate_prompts(generator, prompts, budget)
        own = generator
        return ContinuousGenerator(self, own.tokenizer, own.base, own.meter, own.deadline).generate(
            prompts
        )

    def start(self, prompt: Prompt, number: int, receive: Receive) -> Callable[[], None]:
        with self.admitted(prompt.engine_texts - number):
            return self._engine.start(prompt, receive)

    def agrees(self, ids: list[int]) -> bool:
        """Return whether a text of the engine is that of `generate`, if that is exact."""
        inbox: SimpleQueue[NewTokens] = SimpleQueue()
        features = {"input_ids": ids}
        prompt = Prompt(features, Encoding(), GenerationParameters(), TRIAL_TOKENS)
        self._engine.start(prompt, inbox.put)
        found: list[int] = []
        finished = False
        while not finished:
            new = inbox.get(timeout=TRIAL_SECONDS)
            if new.error:
                raise new.error
            found += new.sequences[0]
            finished = new.finished
        batch = {"input_ids": torch.tensor([ids]), "attention_mask": torch.ones(1, len(ids))}
        ends = sorted(end_tokens(self._base)) or None
        config = GenerationConfig(
            max_new_tokens=TRIAL_TOKENS, do_sample=False, eos_token_id=ends, pad_token_id=0
        )
        expected = self.generate(batch, config)[0, len(ids) :].tolist()
        return found == expected or not self.full_precision

    @property
    def load_metrics(self) -> Mapping[str, float]:
        """The numbers of running and waiting texts, and the used share of the cache in percent."""
        own = self._engine.load_metrics
        groups = super().load_metrics
        return {name: value + groups.get(name, 0) for name, value in own.items()}

    def _is_greedy(self, prompt: Prompt) -> bool:
        """Return whether a text takes the most likely token of the model itself in each place."""
        parameters = prompt.parameters
        given = {**self._base.to_dict(), **parameters.for_generate, **parameters.for_kit}
        changed = [
            name for name, neutral in NEUTRAL.items() if given.get(name) not in (None, neutral)
        ]
        other_ends = prompt.ends(self._base) != end_tokens(self._base)
        fits = len(prompt) + prompt.new_tokens <= self._capacity
        special = parameters.records_tokens or other_ends or prompt.grammar or prompt.syntax
        return fits and not (changed or special)


@dataclass(eq=False)
class _Text:
    """A text, the blocks that it may need, and how many of its tokens were passed on."""

    prompt: Prompt
    receive: Receive
    number: str
    blocks: int
    seen: int = 0


class PagedEngine:
    """The manager of transformers, and the texts that it generates.

    Texts start only where the cache has blocks for all their tokens: the manager would else
    interrupt others.

    Args:
        module: the module, which nothing else runs: the manager changes its attention.
        base: the checkpoint's generation config.
        settings: the size of the cache and the numbers of texts.
    """

    def __init__(
        self, module: PreTrainedModel, base: GenerationConfig, settings: PagedSettings
    ) -> None:
        self._settings = settings
        self._manager = create_manager(
            module,
            sorted(end_tokens(base)),
            block_size=BLOCK,
            blocks=settings.blocks,
            max_batch_tokens=max(STEP_TOKENS, settings.max_running),
        )
        self._lock = threading.RLock()
        self._started = 0
        self._running: dict[str, _Text] = {}
        self._waiting: deque[_Text] = deque()
        self._failed = self._closed = False
        # The thread of the manager is a daemon like the one that starts it.
        threading.Thread(target=self._run, name="continuous-batching", daemon=True).start()

    @property
    def load_metrics(self) -> Mapping[str, float]:
        """The numbers of running and waiting texts, and the reserved share of the cache."""
        with self._lock:
            return {
                "running_texts": len(self._running),
                "waiting_texts": len(self._waiting),
                "cache_usage": 100 * self._reserved / self._settings.blocks,
            }

    def start(self, prompt: Prompt, receive: Receive) -> Callable[[], None]:
        """Start a text, and return a function that ends it before its end.

        Args:
            prompt: the prompt.
            receive: takes its tokens, in a thread of the engine; it must return at once.

        Raises:
            EngineFailed: the manager has ended.
        """
        with self._lock:
            if self._failed:
                raise EngineFailed
            self._started += 1
            blocks = math.ceil((len(prompt) + prompt.new_tokens) / BLOCK)
            text = _Text(prompt, receive, str(self._started), blocks)
            self._waiting.append(text)
            self._start_waiting()
        return partial(self._cancel, text)

    def close(self) -> None:
        """End the threads."""
        self._closed = True

    @property
    def _reserved(self) -> int:
        return sum(text.blocks for text in self._running.values())

    def _start_waiting(self) -> None:
        """Start the texts that wait, in their order, as far as there is space for them."""
        while self._waiting and len(self._running) < self._settings.max_running:
            if self._reserved + self._waiting[0].blocks > self._settings.blocks:
                return
            text = self._waiting.popleft()
            self._running[text.number] = text
            self._manager.add_request(
                [int(token) for token in text.prompt.features["input_ids"]],
                text.number,
                max_new_tokens=text.prompt.new_tokens,
                streaming=True,
            )

    def _cancel(self, text: _Text) -> None:
        with self._lock:
            if self._running.pop(text.number, None):
                self._manager.cancel_request(text.number)
                self._start_waiting()
            elif text in self._waiting:
                self._waiting.remove(text)

    def _run(self) -> None:
        """Pass tokens on until the engine is closed, or the manager fails."""
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
            text = self._running.get(output.request_id)
            if text is None:
                return
            new = list(output.generated_tokens[text.seen :])
            text.seen += len(new)
            finished, failed = output.is_finished(), output.error is not None
            if finished or failed:
                del self._running[text.number]
                self._start_waiting()
        error = self._error(output.error) if failed else None
        text.receive(NewTokens([new], finished=finished, error=error))

    def _error(self, message: str) -> RequestError:
        """Return the error of a text; the manager goes on, unless it has stopped itself."""
        if is_stopping(self._manager):
            return EngineFailed()
        logger.error("transformers' continuous batching failed at a text")
        return classify(RuntimeError(message))

    def _fail(self) -> None:
        with self._lock:
            self._failed = True
            texts = [*self._running.values(), *self._waiting]
            self._running, self._waiting = {}, deque()
        for text in texts:
            text.receive(NewTokens(error=EngineFailed()))


def as_paged(model: Model, module: PreTrainedModel, spec: ModelSpec) -> PagedModel | None:
    """Return a model whose greedy texts the manager generates.

    Args:
        model: the model, after the trial of its batches.
        module: its module.
        spec: the model, as it was loaded.

    Returns:
        The model; None if the manager does not generate the texts of `generate`.
    """
    handler, checkpoint = spec.config.handler, spec.checkpoint
    blocks = cache_blocks(spec, PRECISIONS[module.dtype], module.device) * CACHE_BLOCK // BLOCK
    settings = PagedSettings(blocks, handler.max_num_seqs, handler.max_waiting)
    rows = checkpoint.probe_rows(blocks * BLOCK // 2).batches[0]
    try:
        paged = PagedModel(model, module, checkpoint.generation_config, settings)
        if all(paged.agrees(row.features["input_ids"]) for row in rows):
            return paged
        reason = "other texts"
    except Exception as error:  # noqa: BLE001 - each family refuses it in its own way
        reason = type(error).__name__
    logger.info("%s runs in static groups (%s)", checkpoint.architecture, reason)
    return None


def _twin(module: PreTrainedModel) -> PreTrainedModel:
    """Return a module with the same weights in memory, and a configuration of its own."""
    twin: PreTrainedModel = copy.deepcopy(
        module, {id(tensor): tensor for tensor in module.parameters()}
    )
    vars(twin).pop("forward", None)  # A compiled one runs the other module.
    return twin
