"""Where generated texts end: end tokens, stop strings, the maximum of new tokens, and a deadline.

Each sequence has its own state, so that its tokens, its text and its finish reason do not depend on
the other sequences of the batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile
from typing import Any, Literal, NamedTuple

import torch
from transformers import StoppingCriteria

from ..process.deadline import Deadline
from ..process.ranks import world_size
from ..types.request import GeneratedToken, TextStream, WrittenTokens
from .detokenization import DecoderState, IncrementalDecoder
from .growing import Growing
from .logits_processors import BatchRows, LogprobRecorder, TokenScores
from .message import MessageReader, MessageSyntax

FinishReason = Literal["length", "eos_token", "stop_sequence"]
# Under torchrun, rank 0 sends its time to every process, and steps are short.
STEPS_PER_BROADCAST = 8


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """A token of a text, which begins after `start` characters; the next one shows its end."""

    start: int
    token: GeneratedToken


@dataclass(frozen=True)
class GenerationState:
    """The generated part of one sequence.

    Attributes:
        text: the text that further tokens cannot change. The text of a finished sequence is
            complete, without its stop string.
        tokens: the number of new tokens, up to the one that ended the sequence.
        finish_reason: what ended the sequence; None before its end.
        decoding: the state of the decoder.
        records: the tokens of the text with their log probabilities, where they are recorded.
        hidden: the positions and names of the special tokens that the text omits, where a stop
            string has such a name.
        prompt: the tokens of the prompt with their log probabilities, where they are requested.
        omits_last: whether the text omits the last token, which ended the sequence.
        reasoning_tokens: the number of tokens of the thoughts that the text begins with.
        stop_string: the stop string that ended the sequence; None for another end.
        end_token: the end token that ended the sequence; None for another end.
        ids: the ids of the new tokens, where they are requested.
    """

    text: str
    tokens: int
    finish_reason: FinishReason | None
    decoding: DecoderState = field(repr=False)
    records: Growing[TokenRecord] = field(default_factory=Growing, repr=False)
    hidden: tuple[tuple[int, str], ...] = field(default=(), repr=False)
    prompt: Sequence[GeneratedToken] = field(default=(), repr=False)
    omits_last: bool = False
    reasoning_tokens: int = 0
    stop_string: str | None = None
    end_token: int | None = None
    ids: Growing[int] | None = field(default=None, repr=False)

    @property
    def kept_tokens(self) -> int:
        """The number of new tokens, without an end token that the text omits."""
        return self.tokens - self.omits_last

    def recorded_end(self, count: int) -> int:
        """Return the number of characters of the first recorded tokens together."""
        return self.records[count].start if count < len(self.records) else len(self.text)

    def recorded_tokens(self, first: int = 0, length: int | None = None) -> list[GeneratedToken]:
        """Return the recorded tokens, whose texts together are the text.

        Args:
            first: the number of tokens to omit.
            length: the characters of the text at which the last token ends; None for all.
        """
        records = self.records[first:]
        ends = [*(record.start for record in records[1:]), len(self.text)]
        return [
            replace(record.token, text=self.text[record.start : end])
            for record, end in zip(records, ends, strict=False)
            if length is None or end <= length
        ]


# Takes the number of a prompt, and the new tokens and the state of each of its sequences.
OnEnd = Callable[[int, Sequence[list[int]], Sequence[GenerationState]], None]


@dataclass(frozen=True)
class StopTracker:
    """Finds the end of the sequences after one prompt, token by token.

    Attributes:
        decoder: decodes the tokens.
        prompt: the tokens before the new ones.
        stop_strings: the texts before which a sequence ends.
        end_tokens: ids of the tokens that end a sequence.
        max_new_tokens: the maximum number of new tokens.
        shown_ends: the end tokens that are part of the text, as in transformers' pipelines.
        syntax: the syntax of thoughts and tool calls; None for a plain text.
        future: the outcome that a request waits for; None where the batch returns it. Its
            cancellation ends the sequences.
        result: makes the task's result of a finished sequence, for its stream.
        keeps_ids: whether states have the ids of the new tokens.
    """

    decoder: IncrementalDecoder
    prompt: Sequence[int]
    stop_strings: tuple[str, ...]
    end_tokens: frozenset[int]
    max_new_tokens: int
    shown_ends: frozenset[int] = frozenset()
    syntax: MessageSyntax | None = None
    future: Future[Any] | None = None
    result: Callable[[GenerationState], Mapping[str, Any]] | None = None
    keeps_ids: bool = False
    # What reads the text of each stream, by its identity.
    _readers: dict[int, MessageReader] = field(default_factory=dict, repr=False, compare=False)

    @property
    def is_cancelled(self) -> bool:
        """Whether no request waits for the outcome any more."""
        return self.future is not None and self.future.cancelled()

    def start(self) -> GenerationState:
        """Return the state before the first new token."""
        decoding = self.decoder.start(self.prompt)
        return GenerationState("", 0, None, decoding, ids=Growing() if self.keeps_ids else None)

    def add(
        self, state: GenerationState, token: int, scores: TokenScores | None = None
    ) -> GenerationState:
        """Return the state after one more token, which a finished sequence ignores.

        A token with scores is recorded, unless it is an end token that the text omits, or follows a
        stop string.
        """
        if state.finish_reason:
            return state
        ids = None if state.ids is None else state.ids.plus(token)
        state = replace(state, tokens=state.tokens + 1, ids=ids)
        if token in self.end_tokens - self.shown_ends:
            return replace(self._finish(state, "eos_token", token), omits_last=True)
        if scores:
            state = replace(state, records=state.records.plus(self._record(state, token, scores)))
        decoding, new = self.decoder.add(state.decoding, token)
        state = self._append(replace(state, decoding=decoding), new)
        if self._is_reasoning(state, len(state.text) - len(new)):
            state = replace(state, reasoning_tokens=state.tokens)
        if token in self._hidden_names and not state.finish_reason:
            state = self._append_hidden(state, self._hidden_names[token])
        if token in self.end_tokens:
            return self._finish(state, "eos_token", token)
        is_full = state.tokens == self.max_new_tokens
        return self._finish(state, "length") if is_full else state

    def read(self, tokens: Sequence[int]) -> GenerationState:
        """Return the state after all tokens of a sequence; tokens after its end are ignored."""
        state = self.start()
        if self.stop_strings or (self.syntax and self.syntax.reasoning):
            for token in tokens:
                state = self.add(state, token)
            return state
        tokens = tokens[: self.max_new_tokens]
        end = next((place for place, token in enumerate(tokens) if token in self.end_tokens), None)
        omits_last = end is not None and tokens[end] not in self.shown_ends
        kept = tokens if end is None else tokens[: end + 1 - omits_last]
        if self.keeps_ids:
            state = replace(state, ids=Growing(tokens if end is None else tokens[: end + 1]))
        state = replace(
            state, text=self.decoder.decode(state.decoding, kept), omits_last=omits_last
        )
        if end is not None:
            return replace(state, tokens=end + 1, finish_reason="eos_token", end_token=tokens[end])
        is_full = len(tokens) == self.max_new_tokens
        reason: FinishReason | None = "length" if is_full else None
        return replace(state, tokens=len(tokens), finish_reason=reason)

    def certain_text(self, state: GenerationState) -> str:
        """Return the text without a last part that may become a stop string, or end a part."""
        text = state.text
        if state.finish_reason:
            return text
        marks = (*self.stop_strings, *(self.syntax.marks if self.syntax else ()))
        held = max((_overlap(text, mark) for mark in marks), default=0)
        return text[: min(len(text) - held, self._special_stop_start(state))]

    def emit(self, state: GenerationState, stream: TextStream) -> None:
        """Send the certain part of a text; only whole tokens, if tokens are recorded.

        The last token comes with the end of the response, which is part of a token's event in the
        protocol of text-generation-inference.
        """
        ids = state.ids or ()
        stream.written = WrittenTokens(len(self.prompt), state.tokens, self.prompt, ids)
        certain = self.certain_text(state)
        tokens = state.recorded_tokens(stream.emitted_tokens, len(certain))
        tokens = tokens[:-1] if state.finish_reason else tokens
        if state.records:
            certain = certain[: state.recorded_end(stream.emitted_tokens + len(tokens))]
        if self.syntax is None:
            stream.emit(certain, tokens)
            return
        if id(stream) not in self._readers:
            self._readers[id(stream)] = MessageReader(self.syntax)
        message = self._readers[id(stream)].read(certain)
        sent = stream.emit_reasoning(message.reasoning, tokens)
        stream.emit(message.content, () if sent else tokens)
        if not state.finish_reason:
            stream.emit_calls(message.calls)

    def end(self, state: GenerationState, stream: TextStream) -> None:
        """Send the end of a finished text."""
        if state.finish_reason and self.result:
            stream.end(self.result(state))

    def _is_reasoning(self, state: GenerationState, known: int) -> bool:
        """Return whether all tokens so far are thoughts, or may be.

        Args:
            known: the number of characters before the last token.
        """
        if self.syntax is None or state.reasoning_tokens < state.tokens - 1:
            return False
        return self.syntax.is_reasoning(state.text, known)

    def _append(self, state: GenerationState, new: str) -> GenerationState:
        """Return a state with new text, finished if the text completes a stop string."""
        if not new:
            return state
        text = state.text + new
        found = find_stop(text, self.stop_strings, len(state.text))
        longer = replace(state, text=text)
        named = self._find_special_stop(longer, len(new)) if state.hidden else None
        stops = [each for each in (found, named) if each is not None]
        return _cut(longer, min(stops)) if stops else longer

    def _append_hidden(self, state: GenerationState, name: str) -> GenerationState:
        """Return a state with a special token that the text omits, finished as by new text."""
        hidden = (*state.hidden, (len(state.text), name))
        state = replace(state, hidden=hidden[-self._longest_special_stop :])
        found = self._find_special_stop(state, 0)
        return state if found is None else _cut(state, found)

    def _find_special_stop(self, state: GenerationState, new: int) -> FoundStop | None:
        """Return the first stop string with a special token that the text omits.

        Args:
            state: the state.
            new: the number of new characters at the end of its text.
        """
        whole = _TextWithSpecialTokens(state, self._longest_special_stop + new)
        found = find_stop(whole.text, self._special_stops)
        return None if found is None else FoundStop(whole.place(found.place), found.text)

    def _special_stop_start(self, state: GenerationState) -> int:
        """Return the start of the last part of a text that may become such a stop string."""
        if not self._special_stops:
            return len(state.text)
        whole = _TextWithSpecialTokens(state, self._longest_special_stop)
        held = max(_overlap(whole.text, stop) for stop in self._special_stops)
        return whole.place(len(whole.text) - held)

    @cached_property
    def _hidden_names(self) -> Mapping[int, str]:
        return self.decoder.hidden_names(self.stop_strings)

    @cached_property
    def _special_stops(self) -> tuple[str, ...]:
        names = self._hidden_names.values()
        return tuple(stop for stop in self.stop_strings if any(name in stop for name in names))

    @cached_property
    def _longest_special_stop(self) -> int:
        return max(map(len, self._special_stops), default=0)

    def _record(self, state: GenerationState, token: int, scores: TokenScores) -> TokenRecord:
        top = [
            self._token(each, logprob, self.decoder.text_after(state.decoding, each))
            for each, logprob in scores.top
        ]
        chosen = self._token(token, scores.logprob)
        return TokenRecord(len(state.text), replace(chosen, top=top, rank=scores.rank))

    def _token(self, token: int, logprob: float, text: str = "") -> GeneratedToken:
        special, partial = self.decoder.is_special(token), self.decoder.part_of_character(token)
        return GeneratedToken(token, text, logprob, special, partial)

    def _finish(
        self, state: GenerationState, reason: FinishReason, end_token: int | None = None
    ) -> GenerationState:
        if not state.finish_reason:
            state = self._append(state, self.decoder.rest(state.decoding))
        if state.finish_reason:
            return state
        return replace(state, finish_reason=reason, end_token=end_token)


class _TextWithSpecialTokens:
    """The last part of a text, with the names of the special tokens that it omits.

    Args:
        state: the state.
        length: the maximum number of characters without the names.

    Attributes:
        text: the last part with the names.
    """

    def __init__(self, state: GenerationState, length: int) -> None:
        self._start = at = max(0, len(state.text) - length)
        self._names: list[tuple[int, str]] = []
        self.text = ""
        for place, name in state.hidden:
            if place >= self._start:
                self.text += state.text[at:place]
                self._names.append((len(self.text), name))
                self.text, at = self.text + name, place
        self.text += state.text[at:]

    def place(self, index: int) -> int:
        """Return the position in the text itself; the position of the name within a name."""
        left_out = (min(len(name), max(0, index - start)) for start, name in self._names)
        return self._start + index - sum(left_out)


def _cut(state: GenerationState, found: FoundStop) -> GenerationState:
    place, stop = found
    return replace(
        state,
        text=state.text[:place],
        finish_reason="stop_sequence",
        records=Growing([record for record in state.records if record.start < place]),
        stop_string=stop,
    )


class DeadlineCriterion(StoppingCriteria):
    """Ends all rows once the deadline has passed, and `reached` is true."""

    def __init__(self, deadline: Deadline) -> None:
        self.reached = False
        self._deadline = deadline
        self._steps = 0
        self._interval = STEPS_PER_BROADCAST if world_size() > 1 else 1

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        """Return for each row whether the deadline has passed."""
        self._steps += 1
        if self._steps % self._interval == 0:
            self.reached = self._deadline.passed_together()
        return _per_row([self.reached] * len(input_ids), input_ids)


class SequenceCriterion(StoppingCriteria, ABC):
    """Ends the rows of each prompt by its tracker. All prompts have the same number of rows.

    Args:
        trackers: one for each prompt.
        width: the length of the padded prompts.
    """

    def __init__(self, trackers: Sequence[StopTracker], width: int) -> None:
        self._trackers, self._width = trackers, width

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        """Return for each row whether it is finished."""
        of_rows = self._of_rows(len(input_ids))
        pairs = zip(self._finished(input_ids, of_rows), of_rows, strict=True)
        return _per_row([finished or each.is_cancelled for finished, each in pairs], input_ids)

    def read(self, number: int, sequences: Sequence[list[int]]) -> list[GenerationState]:
        """Return the state of each sequence of a prompt, given all of its new tokens."""
        return [self._trackers[number].read(tokens) for tokens in sequences]

    @abstractmethod
    def _finished(self, input_ids: torch.Tensor, of_rows: Sequence[StopTracker]) -> list[bool]:
        """Return for each row whether it is finished, given its tracker."""

    def _of_rows(self, rows: int) -> list[StopTracker]:
        copies = rows // len(self._trackers)
        return [each for each in self._trackers for _ in range(copies)]


class RowTexts:
    """The texts that are needed before their rows end: their tokens are added as they come.

    Args:
        streams: the stream of each row; None for a row without one.
        recorder: has the log probabilities of recorded tokens; None if no tokens are recorded.
        rows: the states of the rows; the stream of one that its grammar has failed has no end.
    """

    def __init__(
        self,
        streams: Sequence[TextStream | None] = (),
        recorder: LogprobRecorder | None = None,
        rows: BatchRows | None = None,
    ) -> None:
        self._streams = {row: stream for row, stream in enumerate(streams) if stream}
        self._recorder, self._matchers = recorder, rows.matchers if rows else {}
        self._states: dict[int, GenerationState] = {}

    def get(self, row: int) -> GenerationState | None:
        """Return the state of a row; None if its text is not needed before its end."""
        return self._states.get(row)

    def scores(self, chosen: torch.Tensor) -> Mapping[int, TokenScores]:
        """Return the scores of the new tokens of the rows whose tokens are recorded."""
        return self._recorder.scores(chosen) if self._recorder else {}

    def needs(self, row: int, tracker: StopTracker) -> bool:
        """Return whether the text of a row is needed before its end, apart from its scores."""
        return bool(row in self._states or tracker.stop_strings or row in self._streams)

    def add(
        self, row: int, tracker: StopTracker, tokens: Sequence[int], scores: TokenScores | None
    ) -> None:
        """Add new tokens to the text of a row, and stream it."""
        state = self._states.get(row) or tracker.start()
        for token in tokens:
            state = tracker.add(state, token, scores)
        self._states[row] = state
        if row in self._streams:
            tracker.emit(state, self._streams[row])
            if not (row in self._matchers and self._matchers[row].error):
                tracker.end(state, self._streams[row])


class RowCriterion(SequenceCriterion):
    """Ends each row by itself.

    Args:
        trackers: one for each prompt.
        width: the length of the padded prompts.
        texts: the texts that are needed before their rows end.
        rows: the states of the rows; a failed row ends.
        on_end: is called once all rows of a prompt have ended, while other prompts run.
    """

    def __init__(
        self,
        trackers: Sequence[StopTracker],
        width: int,
        texts: RowTexts | None = None,
        rows: BatchRows | None = None,
        on_end: OnEnd | None = None,
    ) -> None:
        super().__init__(trackers, width)
        self._texts, self._rows = texts or RowTexts(), rows or BatchRows()
        self._seen = width
        self._unfinished = set(range(len(trackers)))
        self._on_end = on_end

    def read(self, number: int, sequences: Sequence[list[int]]) -> list[GenerationState]:
        tracker, first = self._trackers[number], number * len(sequences)
        rows = enumerate(sequences, first)
        return [self._texts.get(row) or tracker.read(tokens) for row, tokens in rows]

    def _finished(self, input_ids: torch.Tensor, of_rows: Sequence[StopTracker]) -> list[bool]:
        self._add_to_texts(input_ids, of_rows)
        self._seen = input_ids.shape[1]
        last = input_ids[:, -1].tolist()
        self._rows.ended |= {
            row for row, each in enumerate(of_rows) if self._has_ended(row, each, last[row])
        }
        if self._on_end:
            self._pass_on(input_ids, self._on_end)
        return [row in self._rows.ended for row in range(len(of_rows))]

    def _add_to_texts(self, input_ids: torch.Tensor, of_rows: Sequence[StopTracker]) -> None:
        """Add the new tokens of the rows that have not ended to their texts."""
        scores = self._texts.scores(input_ids[:, -1])
        over = self._rows.ended | self._rows.failed
        needed = [
            row
            for row, each in enumerate(of_rows)
            if not (row in over or each.is_cancelled)
            and (row in scores or self._texts.needs(row, each))
        ]
        new = input_ids[needed, self._seen :].tolist() if needed else []
        for row, tokens in zip(needed, new, strict=True):
            self._texts.add(row, of_rows[row], tokens, scores.get(row))

    def _has_ended(self, row: int, tracker: StopTracker, last: int) -> bool:
        if row in self._rows.failed:
            return True
        if state := self._texts.get(row):
            return state.finish_reason is not None
        return self._seen - self._width >= tracker.max_new_tokens or last in tracker.end_tokens

    def _pass_on(self, input_ids: torch.Tensor, on_end: OnEnd) -> None:
        """Call `on_end` for each prompt whose rows have all ended since the last call."""
        copies = len(input_ids) // len(self._trackers)
        for number in sorted(self._unfinished):
            rows = range(number * copies, (number + 1) * copies)
            if self._rows.ended.issuperset(rows):
                self._unfinished.discard(number)
                new = input_ids[rows.start : rows.stop, self._width :].tolist()
                on_end(number, new, self.read(number, new))


class BeamCriterion(SequenceCriterion):
    """Ends each beam by itself.

    Beams change their rows at each step, so the state of a beam is found by its tokens.
    """

    def __init__(self, trackers: Sequence[StopTracker], width: int) -> None:
        super().__init__(trackers, width)
        self._texts: dict[tuple[int, ...], GenerationState] = {}

    def _finished(self, input_ids: torch.Tensor, of_rows: Sequence[StopTracker]) -> list[bool]:
        if not any(each.stop_strings for each in self._trackers):
            return [False] * len(of_rows)  # `generate` ends them by their tokens and their number.
        copies = len(of_rows) // len(self._trackers)
        rows = enumerate(input_ids[:, self._width :].tolist())
        keys = [(row // copies, *tokens) for row, tokens in rows]
        self._texts = {key: self._text(key) for key in keys}
        return [self._texts[key].finish_reason is not None for key in keys]

    def _text(self, key: tuple[int, ...]) -> GenerationState:
        prompt, *tokens = key
        tracker, before = self._trackers[prompt], self._texts.get(key[:-1])
        return tracker.add(before, tokens[-1]) if before else tracker.read(tokens)


class PromptLookupCriterion(SequenceCriterion):
    """Ends the one row of prompt lookup or assisted decoding, which may remove its last tokens."""

    def __init__(self, trackers: Sequence[StopTracker], width: int) -> None:
        super().__init__(trackers, width)
        self._tokens: list[int] = []
        # The state before each token, and after the last one.
        self._texts = [trackers[0].start()]

    def _finished(self, input_ids: torch.Tensor, of_rows: Sequence[StopTracker]) -> list[bool]:
        tokens = input_ids[0, self._width :].tolist()
        same = takewhile(lambda pair: pair[0] == pair[1], zip(self._tokens, tokens, strict=False))
        kept = len(list(same))
        texts = self._texts[: kept + 1]
        for token in tokens[kept:]:
            texts.append(of_rows[0].add(texts[-1], token))
        self._tokens, self._texts = tokens, texts
        return [texts[-1].finish_reason is not None]


class FoundStop(NamedTuple):
    """A stop string in a text, and the position at which it begins."""

    place: int
    text: str


def find_stop(text: str, stops: Sequence[str], seen: int = 0) -> FoundStop | None:
    """Return the first stop string; the first `seen` characters have none."""
    starts = ((stop, max(0, seen - len(stop) + 1)) for stop in stops)
    found = [FoundStop(at, stop) for stop, start in starts if (at := text.find(stop, start)) >= 0]
    return min(found, default=None)


def _overlap(text: str, stop: str) -> int:
    """Return the number of characters at the end of a text that may begin a stop string."""
    sizes = range(min(len(stop) - 1, len(text)), 0, -1)
    return next((size for size in sizes if text.endswith(stop[:size])), 0)


def _per_row(values: Sequence[bool], input_ids: torch.Tensor) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.bool, device=input_ids.device)
