"""The interface of a back end that runs sequences side by side, and its running sequences.

Its settings are the sampling parameters of a prompt, and the size of its cache.
"""

from __future__ import annotations

import json
import math
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from statistics import fmean
from typing import Any, TypeVar

import numpy as np
import torch
from transformers import GenerationConfig, PreTrainedConfig

from ...batching.rows import RowOutcome
from ...checkpoints.model_spec import ModelSpec
from ...config.messages import shorten
from ...errors import (
    DeadlineExceeded,
    Overloaded,
    RequestError,
    RequestTooLarge,
    WrongCheckpoint,
    attempt,
)
from ...model import Model, ModelCapabilities
from ...process.deadline import PATIENCE, Deadline
from ...process.resources import memory_limit
from ...telemetry.metrics import Meter
from ..checkpoint_defaults import FILE_SETTINGS
from ..detokenization import IncrementalDecoder, decoders_of
from ..generator import Generator, Prompt
from ..logits_processors import MIN_LOGPROB, TokenScores
from ..parameters import GenerationParameters, ParameterSpec, specs_of
from ..stopping import GenerationState, StopTracker

Result = TypeVar("Result")


@dataclass(frozen=True)
class NewTokens:
    """What a back end has generated for a sequence since its last message.

    Attributes:
        sequences: new tokens of each sequence: one, or the beams of a search at its end.
        logprobs: the log probability of each token of one sequence, where the prompt asks for them.
        top_logprobs: ids and log probabilities of the most likely tokens in the place of each one,
            the most likely first, where the prompt asks for them.
        finished: whether these are the last.
        error: why the sequence cannot be generated.
    """

    sequences: Sequence[Sequence[int]] = ()
    logprobs: Sequence[float] = ()
    top_logprobs: Sequence[Sequence[tuple[int, float]]] = ()
    finished: bool = False
    error: RequestError | None = None


Receive = Callable[[NewTokens], None]


class GenerationBackend(ABC):
    """A back end in which a sequence joins the running ones at the next step.

    Attributes:
        capacity: the maximum number of sequences that run or wait.
    """

    capacity: int = sys.maxsize

    @abstractmethod
    def start(self, prompt: Prompt, number: int, receive: Receive) -> Callable[[], None]:
        """Start a sequence.

        Args:
            prompt: the prompt.
            number: which of the prompt's sequences it is; with a seed, each has another. The first
                one starts only if there is room for all of them.
            receive: takes the tokens, in a thread of the back end; it must return soon. The tokens
                come as they are generated if `prompt.is_incremental`, and may come at the end
                otherwise; the first call may have none.

        Returns:
            A function that cancels the sequence.

        Raises:
            RequestError: the back end does not support the prompt's parameters, or is full.
        """


def check_capacity(running: int, capacity: int, new: int = 1) -> None:
    """Check that a back end has room for new sequences.

    Raises:
        Overloaded: it has not.
    """
    if running + new > capacity:
        raise Overloaded(
            f"{running:,} sequences are running or waiting; send the request again later."
        )


def as_too_large(
    outcome: Result | RequestError, sequences: int, capacity: int
) -> Result | RequestError:
    """Return the outcome of a prompt; RequestTooLarge where its request never has room.

    Args:
        outcome: the outcome.
        sequences: the number of sequences of the whole request.
        capacity: the maximum number of sequences that run or wait.
    """
    if sequences <= capacity or not isinstance(outcome, Overloaded):
        return outcome
    return RequestTooLarge(
        f"the request asks for {sequences:,} texts, and {capacity:,} may run or wait (max_num_seqs"
        " and max_waiting); send fewer prompts at once, or a smaller n."
    )


class TokenClock:
    """Measures the time to the first token of a sequence, and between its tokens."""

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
    """One sequence of a prompt, or all beams of a search, while a back end generates it.

    Args:
        prompt: the prompt.
        number: which of the prompt's sequences it is.
        tracker: finds the end of the sequence.
        changed: is set at the end.
        deadline: the time limit of the request, whose client may disconnect earlier.
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
        self._is_tracked = prompt.is_incremental or prompt.parameters.returns_logprobs
        self._text = tracker.start()
        self._lock = threading.Lock()
        self._cancel: Callable[[], None] | None = None
        self.sequences: list[list[int]] = [[]]
        self.clock = TokenClock()
        self.error: Exception | None = None
        self.finished = False

    def start(self, backend: GenerationBackend) -> None:
        """Start the sequence.

        Raises:
            RequestError: the back end does not support the prompt's parameters, or is full.
        """
        cancel = backend.start(self._prompt, self._number, self.receive)
        with self._lock:
            self._cancel = cancel
            if self.finished:  # A stop string came before `cancel` was known.
                cancel()

    def receive(self, new: NewTokens) -> None:
        """Add new tokens, send their text, and end the sequence at a stop string.

        It runs in the back end's thread: to wake a thread for each sequence after each step would
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
        """End the sequence at the deadline, if it has not ended; nothing more of it is sent."""
        with self._lock:
            if not self.finished:
                self.error, self.finished = DeadlineExceeded(), True
                self._end()

    def texts(self) -> list[GenerationState]:
        """Return the text of each sequence."""
        if self._is_tracked and self._text.tokens:
            return [self._text]
        return [self._tracker.read(each) for each in self.sequences]

    def _add(self, new: NewTokens) -> None:
        self.error, self.finished = new.error, new.finished or new.error is not None
        if len(new.sequences) == 1:
            self.sequences[0].extend(new.sequences[0])
            # A back end may have log probabilities that the request does not ask for.
            records = self._prompt.parameters.returns_logprobs
            self._track(new.sequences[0], _scores(new) if records else ())
        elif new.sequences:
            self.sequences = [list(each) for each in new.sequences]

    def _track(self, tokens: Sequence[int], scores: Sequence[TokenScores]) -> None:
        if not self._is_tracked:
            return
        for token, score in zip(tokens, scores or repeat(None), strict=False):
            self._text = self._tracker.add(self._text, token, score)
        if self._stream:
            self._tracker.emit(self._text, self._stream)
            self._tracker.end(self._text, self._stream)
        if self._text.finish_reason:
            self.finished = True

    def _end(self) -> None:
        """Tell the back end, which may have ended it itself, and the thread of the request."""
        if self._cancel:
            self._cancel()
        self._changed.set()


class ContinuousModel(Model, GenerationBackend, ABC):
    """A model that a back end generates with."""

    capabilities = ModelCapabilities(runs_concurrently=True)

    def generate_prompts(
        self, generator: Generator, prompts: Sequence[Prompt], budget: int
    ) -> list[RowOutcome]:
        """Return the new tokens and the texts of each prompt, or its error.

        Args:
            generator: has the tokenizer, and the meter and the deadline of the request.
            prompts: the prompts.
            budget: the maximum number of tokens in a batch of `generate`.
        """
        return run_sequences(self, generator, prompts)


def run_sequences(
    backend: GenerationBackend, generator: Generator, prompts: Sequence[Prompt]
) -> list[RowOutcome]:
    """Have a back end generate the sequences of one request, and return the outcomes.

    `sequences` has the tokens without the end token, and `texts` the finished texts; both have an
    entry for each sequence. The times to the first token and between tokens go to the meter.
    """
    changed = threading.Event()
    decoders = decoders_of(generator.tokenizer)
    number = sum(prompt.backend_sequences for prompt in prompts)
    started = [
        as_too_large(
            attempt(_start, backend, generator, prompt, decoders, changed), number, backend.capacity
        )
        for prompt in prompts
    ]
    running = [each for of_prompt in started if isinstance(of_prompt, list) for each in of_prompt]
    while not (all(each.finished for each in running) or generator.deadline.passed):
        changed.wait(PATIENCE)
        changed.clear()
    for each in running:
        each.cancel()
    if clocks := [each.clock for each in running]:
        generator.meter.seconds["first_token"] = min(clock.to_first for clock in clocks)
        generator.meter.seconds["between_tokens"] = fmean(clock.between for clock in clocks)
    return [
        each if isinstance(each, RequestError) else _outcome(prompt, each, generator.meter)
        for prompt, each in zip(prompts, started, strict=True)
    ]


def _start(
    backend: GenerationBackend,
    generator: Generator,
    prompt: Prompt,
    decoders: Mapping[bool, IncrementalDecoder],
    changed: threading.Event,
) -> list[RunningSequence]:
    """Start each sequence of a prompt; the beams of a search are one of them."""
    started: list[RunningSequence] = []
    ids = prompt.features["input_ids"]
    try:
        for number in range(prompt.backend_sequences):
            tracker = prompt.stop_tracker(decoders, generator.generation_config, ids)
            sequence = RunningSequence(prompt, number, tracker, changed, generator.deadline)
            sequence.start(backend)
            started.append(sequence)
    except BaseException:
        for sequence in started:
            sequence.cancel()
        raise
    return started


def _outcome(prompt: Prompt, running: Sequence[RunningSequence], meter: Meter) -> RowOutcome:
    error = next((each.error for each in running if each.error), None)
    if isinstance(error, RequestError):
        return error
    if error:
        raise error
    texts = [text for each in running for text in each.texts()]
    tokens = [ids for each in running for ids in each.sequences]
    computed = len(prompt) + sum(text.tokens for text in texts)
    meter.count(tokens=computed, slots=computed)
    sequences = [
        np.array(ids[: text.kept_tokens], dtype=np.int64)
        for ids, text in zip(tokens, texts, strict=True)
    ]
    return {"sequences": sequences, "texts": texts}


def _scores(new: NewTokens) -> list[TokenScores]:
    """Return the scores of the tokens of one sequence; none where they are not known."""
    tops = new.top_logprobs or repeat(())
    return [
        TokenScores(_finite(logprob), [(token, _finite(each)) for token, each in top])
        for logprob, top in zip(new.logprobs, tops, strict=False)
    ]


def _finite(logprob: float) -> float:
    return max(MIN_LOGPROB, logprob)


# Whether a back end supports a parameter.
Supports = Callable[[ParameterSpec], bool]
MAX_SEED = 2**63 - 1
# The parameters of the choice of tokens.
SAMPLING_PARAMETERS: Mapping[str, ParameterSpec] = {
    name: spec for name, spec in specs_of(GenerationParameters).items() if spec.transformers
}
CPU = torch.device("cpu")
# Tokens in a block of OpenVINO's cache on CPUs.
BLOCK = 32
# The cache takes at most this fraction of the memory by default.
MEMORY_SHARE = 4
GIGABYTE = 10**9
# Tokens of a sequence, for models without a limit.
UNLIMITED = 4096
BYTES = {"bf16": 2, "f16": 2, "f32": 4, "u8": 1}


def unsupported_parameters(supports: Supports) -> dict[str, ParameterSpec]:
    """Return the parameters that a back end does not support.

    A parameter that has no effect without another unsupported one is not among them.
    """
    return {
        name: spec
        for name, spec in SAMPLING_PARAMETERS.items()
        if not supports(spec) and (spec.needs is None or supports(SAMPLING_PARAMETERS[spec.needs]))
    }


def unsupported_message(name: str, value: Any, mode: str) -> str:
    """Return the sentence for a parameter with a value that a mode of serving does not support."""
    return f"{name} {shorten(json.dumps(value))} is not supported by {mode}; leave it out."


def effective_settings(
    defaults: Mapping[str, Any], parameters: GenerationParameters
) -> dict[str, Any]:
    """Return the values that are in effect for a prompt.

    Args:
        defaults: the values of the checkpoint's generation config.
        parameters: the parameters of the prompt, which take precedence.
    """
    of_generate = {
        name: spec.default for name, spec in SAMPLING_PARAMETERS.items() if spec.default is not None
    }
    given = {**of_generate, **defaults, **parameters.for_generate, **parameters.for_processors}
    has_effect = {
        None: True,
        "do_sample": bool(given.get("do_sample")),
        "num_beams": given.get("num_beams", 1) > 1,
    }
    return {
        name: each for name, each in given.items() if has_effect[SAMPLING_PARAMETERS[name].needs]
    }


def checkpoint_settings(
    generation_config: GenerationConfig, supports: Supports, mode: str
) -> dict[str, Any]:
    """Return the values of a checkpoint's generation config that a back end supports.

    Args:
        generation_config: the checkpoint's generation config.
        supports: whether the back end supports a parameter.
        mode: the keys of the YAML that select the back end, for the message.

    Raises:
        WrongCheckpoint: the back end would ignore one of the values.
    """
    given = {
        name: value for name, value in generation_config.to_dict().items() if value is not None
    }
    unsupported = {name: spec.neutral for name, spec in unsupported_parameters(supports).items()}
    unsupported |= {name: setting.neutral for name, setting in FILE_SETTINGS.items()}
    ignored = [name for name, neutral in unsupported.items() if given.get(name, neutral) != neutral]
    if ignored:
        raise WrongCheckpoint(
            "generation_config.json",
            f"has {ignored[0]}, which is not supported by {mode}",
            "remove it there, or leave continuousBatching out",
        )
    return {
        name: given[name]
        for name, spec in SAMPLING_PARAMETERS.items()
        if supports(spec) and name in given
    }


def cache_blocks(spec: ModelSpec, precision: str, device: torch.device = CPU) -> int:
    """Return the number of blocks of a cache, of 32 tokens each.

    Args:
        spec: the model.
        precision: OpenVINO's name of the data type of the cache.
        device: the device of the cache.
    """
    size = BYTES.get(precision, 4)
    block = BLOCK * bytes_per_token(spec.checkpoint.config.get_text_config(), size)
    return max(1, cache_bytes(spec, size, BLOCK, device) // block)


def cache_bytes(spec: ModelSpec, size: int, block: int, device: torch.device = CPU) -> int:
    """Return the size of the cache in bytes.

    It is `cache_size` of the YAML. By default it has room for `max_num_seqs` sequences of the
    model's limit, and takes at most the worker's share of a quarter of the memory, or of the free
    memory of a GPU.

    Args:
        spec: the model.
        size: bytes of a number in the cache.
        block: tokens of a block; a sequence takes whole blocks.
        device: the device of the cache.
    """
    handler = spec.config.handler
    if handler.cache_size:
        return int(handler.cache_size * GIGABYTE)
    token = bytes_per_token(spec.checkpoint.config.get_text_config(), size)
    wanted = handler.max_num_seqs * math.ceil(longest_sequence(spec) / block) * block * token
    return min(wanted, _available_memory(device) // MEMORY_SHARE // _sharing_workers(spec, device))


def _available_memory(device: torch.device) -> int:
    """Return the free memory of a GPU, or the memory that this process may use, in bytes."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free)
    return memory_limit()


def _sharing_workers(spec: ModelSpec, device: torch.device) -> int:
    """Return how many workers share the memory of a device; TorchServe gives them GPUs in turn."""
    devices = max(1, torch.cuda.device_count()) if device.type == "cuda" else 1
    return math.ceil(spec.config.maxWorkers / devices)


def longest_sequence(spec: ModelSpec) -> int:
    """Return the maximum number of tokens of a prompt and its new text together."""
    limits = (spec.checkpoint.limit, spec.config.handler.max_total_tokens)
    return min(filter(None, limits), default=UNLIMITED)


def bytes_per_token(config: PreTrainedConfig, size: int) -> int:
    """Return the size of the keys and values of one token in all layers, for numbers of a size."""
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(2 * config.num_hidden_layers * heads * width * size)
