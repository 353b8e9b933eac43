"""Constrained decoding: only tokens that keep a text within its grammar are allowed.

A grammar is compiled once for each prompt by llguidance, whose parser limits the time and memory of
a grammar and of each of its tokens. A :class:`GrammarMatcher` has the state of one sequence, with
the tokens that may come next; :class:`GrammarProcessor` applies that to the logits of transformers'
`generate`.

https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from pathlib import Path
from threading import BoundedSemaphore, Lock
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from llguidance import LLMatcher, LLParserLimits, LLTokenizer
from llguidance.hf import from_tokenizer
from transformers import LogitsProcessor, PreTrainedTokenizerBase

from ..compat.llguidance import compiled_module, error_reason
from ..errors import (
    BadRequest,
    Overloaded,
    RequestError,
    RequestTooLarge,
    Unprocessable,
    copied,
    summarize,
)
from ..process.ranks import broadcast_from_rank0
from .json_schemas import Schema, constraints_in, json_rule, relaxed

Mask = npt.NDArray[np.bool_]
# 128 tools with 12 parameters each have 175,000, and compile in a tenth of a second.
MAX_CHARACTERS = 262_144
# Arguments of `LLParserLimits`. Schemas within them compile in less than a second, and each token
# takes milliseconds. Without verbose errors, messages contain no state of the parser.
LIMITS: dict[str, Any] = {
    "initial_lexer_fuel": 100_000,
    "max_grammar_size": 20_000,
    "max_lexer_states": 50_000,
    "step_max_items": 10_000,
    "verbose_errors": False,
}
# The limits of a trial. On a busy machine the wall clock shows a multiple of the CPU time: a trial
# that exceeds `TRIAL_TIMEOUT` says nothing about the grammar.
TRIAL = Path(__file__).with_name("grammar_trial.py")
TRIAL_CPU_SECONDS, TRIAL_BYTES, TRIAL_TIMEOUT = 1, 4 * 2**30, 20.0
# Each trial may take `TRIAL_BYTES` of memory.
TRIALS_AT_ONCE = 2
# After this number of trials that exceed their limits, all other constraints are removed, too.
KILLED_TRIALS = 4
CACHED_GRAMMARS = 16
Compiled = TypeVar("Compiled")
Value = TypeVar("Value")


@dataclass(frozen=True)
class CompiledGrammar:
    """A compiled grammar: the state before the first token, and the ids of the end tokens."""

    start: LLMatcher = field(repr=False)
    end_tokens: frozenset[int]

    def matcher(self) -> GrammarMatcher:
        """Return a matcher of a new sequence."""
        return GrammarMatcher(self.start.deep_copy(), self.end_tokens)


class GrammarMatcher:
    """The state of one sequence in its grammar; after its end no token is restricted."""

    def __init__(self, matcher: LLMatcher, end_tokens: frozenset[int]) -> None:
        self.ended = False
        self._matcher, self._end_tokens = matcher, sorted(end_tokens)
        self._tokens, self._is_stuck = 0, False

    @property
    def may_end(self) -> bool:
        """Whether the text is complete, so that an end token is allowed."""
        return self._matcher.is_accepting()

    @property
    def error(self) -> Unprocessable | None:
        """The error of a sequence for which no token is possible; None without an error."""
        if self._is_stuck:
            return Unprocessable(
                f"After {self._tokens:,} tokens the grammar allows none that allowed_token_ids,"
                " bad_words and generation_config.json allow; change one of them."
            )
        if not self._matcher.is_error():
            return None
        return Unprocessable(
            f"The grammar became too complex after {self._tokens:,} tokens"
            f" ({_reason(self._matcher.get_error())}); simplify it."
        )

    def allowed(self, width: int) -> Mask:
        """Return which tokens may come next, given the number of logits.

        After a complete text or an error, only end tokens may.
        """
        mask = np.zeros(width, dtype=np.bool_)
        if self.ended:
            return ~mask
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        known = np.unpackbits(bits, bitorder="little")[:width]
        mask[: len(known)] = known
        mask[self._end_tokens] = False
        if self.may_end or not mask.any():
            mask[self._end_tokens] = True
        return mask

    def end(self) -> Sequence[int]:
        """Return the end tokens, because no token of the grammar can be chosen.

        Unless the text is complete, the sequence has an error.
        """
        self._is_stuck = not self.may_end
        return self._end_tokens

    def consume(self, token: int) -> None:
        """Add a token; an end token, or a token that is not allowed, ends the sequence."""
        if self.ended:
            return
        self._tokens += token not in self._end_tokens
        is_consumed = token not in self._end_tokens and self._matcher.try_consume_tokens([token])
        # After an error only end tokens are allowed, so that the row end_tokens.
        self.ended = token in self._end_tokens or not (is_consumed or self._matcher.is_error())


class GrammarProcessor(LogitsProcessor):
    """Applies the matchers of rows with a grammar; `width` is the length of the padded prompts."""

    def __init__(self, matchers: Mapping[int, GrammarMatcher], width: int) -> None:
        self._matchers, self._seen = matchers, width

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """Return the logits, with minus infinity for each token that is not allowed."""
        rows = list(self._matchers)
        for row, tokens in zip(rows, input_ids[rows, self._seen :].tolist(), strict=True):
            for token in tokens:
                self._matchers[row].consume(token)
        self._seen = input_ids.shape[1]
        width = scores.shape[1]
        masks = np.stack([each.allowed(width) for each in self._matchers.values()])
        allowed = torch.from_numpy(masks).to(scores.device)
        scores = scores.clone()
        scores[rows] = scores[rows].masked_fill(~allowed, -torch.inf)
        # Other settings, such as `min_new_tokens`, may exclude every token of the grammar.
        excluded = scores[rows].amax(dim=1).isneginf().tolist()
        for row in (row for row, is_excluded in zip(rows, excluded, strict=True) if is_excluded):
            scores[row, self._matchers[row].end()] = 0.0
        return scores


class GrammarCompiler:
    """Compiles grammars for one model; the first one builds the tables of the vocabulary.

    Args:
        tokenizer: the tokenizer.
        vocab_size: the number of the model's logits.
        end_tokens: ids of the tokens that end a text.
        max_characters: the maximum number of characters of a grammar.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        vocab_size: int,
        end_tokens: frozenset[int],
        max_characters: int = MAX_CHARACTERS,
    ) -> None:
        self.max_characters = max_characters
        self._tokenizer, self._vocab_size, self._end_tokens = tokenizer, vocab_size, end_tokens
        self._building = Lock()
        self._tables: LLTokenizer | None = None
        self._compiled = CompileCache(
            self._compile, size=CACHED_GRAMMARS, at_once=TRIALS_AT_ONCE, seconds=TRIAL_TIMEOUT
        )
        self._unsupported = CompileCache(
            _unsupported, size=CACHED_GRAMMARS, at_once=TRIALS_AT_ONCE, seconds=TRIAL_TIMEOUT
        )

    def compile(self, lark: str) -> CompiledGrammar:
        """Compile a grammar in llguidance's variant of Lark.

        Raises:
            RequestTooLarge: it has too many characters.
            BadRequest: it has a mistake, or no text of this model's vocabulary matches it.
            Overloaded: the server has no time for a new grammar.
            Unprocessable: this model does not support grammars.
        """
        check_length(lark, "The grammar", self.max_characters)
        return self._compiled.get(lark)

    def _compile(self, lark: str) -> CompiledGrammar:
        vocabulary = self._vocabulary
        _check_tractable(lark)
        limits = LLParserLimits(**LIMITS)
        start = LLMatcher(vocabulary, lark, log_level=0, limits=limits)
        # An impossible grammar fails at its first token.
        if not start.is_error() and not start.is_accepting():
            start.compute_bitmask()
        if start.is_error() or (start.is_stopped() and not start.is_accepting()):
            reason = _reason(start.get_error())
            raise BadRequest(f"The grammar cannot be compiled: {reason}; change it.")
        return CompiledGrammar(start, self._end_tokens)

    def relaxed(self, schemas: Sequence[Schema]) -> list[Schema]:
        """Return JSON schemas without the constraints that llguidance does not support.

        Raises:
            Overloaded: the server has no time to try them.
        """
        unsupported = self._unsupported.get(json.dumps(constraints_in(schemas)))
        return [relaxed(schema, lambda each: json.dumps(each) in unsupported) for schema in schemas]

    def literal(self, text: str) -> str:
        """Return the Lark expression of a text, which may contain special tokens."""
        special = self._special_tokens
        if not any(name in text for name in special):
            return json.dumps(text) if text else ""
        parts = self._special_pattern.split(text)
        return " ".join(
            f"<[{special[part]}]>" if part in special else json.dumps(part)
            for part in parts
            if part
        )

    @cached_property
    def _special_tokens(self) -> Mapping[str, int]:
        """The tokens that no text has, by their names."""
        added = self._tokenizer.added_tokens_decoder.items()
        known = self._vocabulary
        return {str(name): number for number, name in added if known.is_special_token(number)}

    @cached_property
    def _special_pattern(self) -> re.Pattern[str]:
        names = sorted(self._special_tokens, key=len, reverse=True)
        return re.compile(f"({'|'.join(map(re.escape, names))})")

    @property
    def _vocabulary(self) -> LLTokenizer:
        with self._building:
            if self._tables is None:
                self._tables = _vocabulary(self._tokenizer, self._vocab_size, self._end_tokens)
            return self._tables


def token_bytes(
    tokenizer: PreTrainedTokenizerBase,
    vocab_size: int,
    end_tokens: frozenset[int],
    marks: Sequence[str] = (),
) -> list[bytes]:
    """Return the bytes of each token; a special token has none, unless a mark contains it.

    Args:
        tokenizer: the tokenizer.
        vocab_size: the number of the model's logits.
        end_tokens: ids of the tokens that end a text.
        marks: the texts around thoughts and tool calls.

    Raises:
        Unprocessable: grammars are not supported with this tokenizer.
    """
    vocabulary = _vocabulary(tokenizer, vocab_size, end_tokens)
    names = tokenizer.convert_ids_to_tokens(list(range(min(vocab_size, len(tokenizer)))))
    marked = "\0".join(marks)
    tokens = [
        vocabulary.decode_bytes([number])
        if number not in end_tokens and not vocabulary.is_special_token(number)
        else (name.encode() if name and name in marked else b"")
        for number, name in enumerate(names)
    ]
    return [*tokens, *[b""] * (vocab_size - len(tokens))]


def _vocabulary(
    tokenizer: PreTrainedTokenizerBase, vocab_size: int, end_tokens: frozenset[int]
) -> LLTokenizer:
    if not end_tokens:
        raise Unprocessable(
            "This model has no end token, so grammars are not supported; leave them out."
        )
    size = max(vocab_size, len(tokenizer))
    try:
        return from_tokenizer(tokenizer, n_vocab=size, eos_token=sorted(end_tokens))
    except (ValueError, AttributeError) as error:
        raise Unprocessable(
            f"Grammars are not supported with this model's tokenizer ({summarize(error)})."
        ) from None


class _End(IntEnum):
    FINISHED = 0
    TOO_COMPLEX = 1
    OUT_OF_TIME = 2
    NOT_STARTED = 3


def _check_tractable(lark: str) -> None:
    """Check that another process compiles a grammar within the limits of a trial."""
    if len(_try([lark])) == 0:
        raise BadRequest("The grammar takes too much time or memory to compile; simplify it.")


def _unsupported(constraints: str) -> frozenset[str]:
    """Return the schemas of a JSON list that are not compiled, each as JSON."""
    schemas: list[Schema] = json.loads(constraints)
    larks = [f"start: {json_rule(each, strict=False)}" for each in schemas]
    compiled: list[bool] = []
    for _ in range(KILLED_TRIALS):
        compiled += _try(larks[len(compiled) :])
        if len(compiled) == len(larks):
            break
        compiled.append(False)  # The trial ended with it.
    compiled += [False] * (len(larks) - len(compiled))
    pairs = zip(schemas, compiled, strict=True)
    return frozenset(json.dumps(each) for each, is_compiled in pairs if not is_compiled)


def _try(larks: Sequence[str]) -> list[bool]:
    """Return whether another process compiles each grammar, up to one that exceeds its limits.

    Raises:
        Overloaded: the process had too little CPU time to tell.
    """
    end, compiled = broadcast_from_rank0(_run_trial(larks))
    if end == _End.OUT_OF_TIME:
        raise TooBusyToCompile
    if end == _End.NOT_STARTED:
        raise RuntimeError("the trial of grammars does not start")
    return compiled


def _run_trial(larks: Sequence[str]) -> tuple[_End, list[bool]]:
    limits = (json.dumps(LIMITS), str(TRIAL_CPU_SECONDS), str(TRIAL_BYTES))
    # -I and -S: it starts in a third of the time without what it does not import.
    command = [sys.executable, "-I", "-S", str(TRIAL), compiled_module(), *limits]
    given = json.dumps(larks).encode()
    try:
        done = subprocess.run(
            command, input=given, capture_output=True, timeout=TRIAL_TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired:
        return _End.OUT_OF_TIME, []
    if done.returncode > 0:
        return _End.NOT_STARTED, []
    end = _End.TOO_COMPLEX if done.returncode < 0 else _End.FINISHED
    return end, [line == b"1" for line in done.stdout.split()]


def check_length(text: str, name: str, limit: int) -> None:
    """Check the length of a part of a grammar.

    Raises:
        RequestTooLarge: it has too many characters.
    """
    if len(text) > limit:
        raise RequestTooLarge(
            f"{name} has {len(text):,} characters, and this model's max_grammar_characters is"
            f" {limit:,}; send a smaller one."
        )


def _reason(message: str) -> str:
    return summarize(ValueError(error_reason(message)))


class CompileCache(Generic[Compiled]):
    """Compiles each grammar once, and keeps the result or the error.

    Clients send the same few grammars again and again, and a known grammar does not wait for new
    ones. Of several threads with the same grammar, one compiles it. An :class:`Overloaded` error,
    which says nothing about the grammar, is not kept.

    Args:
        compile_grammar: compiles a grammar, in the thread of the first caller.
        size: the number of results that are kept, and of errors.
        at_once: the number of grammars that are compiled at once.
        seconds: how long a grammar waits for a free slot.
    """

    def __init__(
        self,
        compile_grammar: Callable[[str], Compiled],
        *,
        size: int,
        at_once: int,
        seconds: float,
    ) -> None:
        self._compile, self._seconds = compile_grammar, seconds
        self._lock, self._slots = Lock(), BoundedSemaphore(at_once)
        self._results, self._errors = _Recent[Compiled](size), _Recent[RequestError](size)
        self._running: dict[str, Future[Compiled]] = {}

    def get(self, grammar: str) -> Compiled:
        """Return the compiled grammar.

        Raises:
            RequestError: the error of the grammar.
            Overloaded: no slot is free in time.
        """
        with self._lock:
            if (known := self._results.get(grammar)) is not None:
                return known
            if (error := self._errors.get(grammar)) is not None:
                raise copied(error)
            running = self._running.get(grammar)
            own = self._running[grammar] = running or Future()
        if running is None:
            self._run(grammar, own)
        if failure := own.exception():
            raise copied(failure)
        return own.result()

    def _run(self, grammar: str, future: Future[Compiled]) -> None:
        """Compile a grammar, and set the result of the future that other threads wait for."""
        try:
            with self._slot():
                compiled = self._compile(grammar)
        except BaseException as error:  # noqa: BLE001 - each caller raises its copy
            with self._lock:
                del self._running[grammar]
                if isinstance(error, RequestError) and not isinstance(error, Overloaded):
                    self._errors.put(grammar, copied(error))
            future.set_exception(copied(error))
        else:
            with self._lock:
                del self._running[grammar]
                self._results.put(grammar, compiled)
            future.set_result(compiled)

    @contextmanager
    def _slot(self) -> Iterator[None]:
        if not self._slots.acquire(timeout=self._seconds):
            raise TooBusyToCompile
        try:
            yield
        finally:
            self._slots.release()


class TooBusyToCompile(Overloaded):
    """The server has no time for a new grammar."""

    def __init__(self) -> None:
        super().__init__(
            "The server is too busy to compile the grammar; send the request again later."
        )


class _Recent(Generic[Value]):
    """The values of the most recently used keys."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._values = OrderedDict[str, Value]()

    def get(self, key: str) -> Value | None:
        """Return the value of a key; None if it has none."""
        if key in self._values:
            self._values.move_to_end(key)
        return self._values.get(key)

    def put(self, key: str, value: Value) -> None:
        """Set the value of a key, and remove the least recently used one if there are too many."""
        self._values[key] = value
        if len(self._values) > self._size:
            self._values.popitem(last=False)
