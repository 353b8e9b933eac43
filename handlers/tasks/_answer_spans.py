"""Answers in the windows of a context, from the scores of their first and last tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import AliasChoices, Field, PositiveInt
from transformers import BatchEncoding, PreTrainedTokenizerBase

from handlers.batching.rows import Outputs
from handlers.batching.tokenization import Window, split_windows, window
from handlers.errors import TextTooLong
from handlers.tasks._activations import softmax
from handlers.types.parameters import Parameters

MAX_ANSWERS = 1000
MIN_CONTEXT_TOKENS = 8


class SpanParameters(Parameters):
    """Parameters of answers that are spans of a text."""

    top_k: int = Field(
        default=1, ge=1, le=MAX_ANSWERS, validation_alias=AliasChoices("top_k", "topk")
    )
    """Number of answers, best first. Alias: `topk`."""
    max_answer_len: PositiveInt = 15
    """Maximum tokens of an answer."""
    max_question_len: PositiveInt | None = None
    """Maximum tokens of the question. A longer question is cut."""
    handle_impossible_answer: bool = False
    """Adds the empty answer as a candidate."""


@dataclass(frozen=True)
class AnswerReader:
    """Finds spans of a context in windows.

    Attributes:
        context: which of the row's two texts the context is, 0 or 1.
        cls: id of the token whose position stands for "no answer"; None where there is none.
    """

    context: int
    cls: int | None

    def read(
        self, row: Window, outputs: Outputs, *, max_tokens: int, count: int, align: bool
    ) -> Iterator[tuple[int, int, float]]:
        """Yield (start character, end character, probability) of a window's best spans.

        Args:
            row: the window.
            outputs: its `start_logits` and `end_logits`.
            max_tokens: the maximum number of tokens of a span.
            count: the number of spans; several can become equal when they are extended.
            align: whether spans are extended to whole words.
        """
        for first, last, score in self.spans(row, outputs, max_tokens=max_tokens, count=count):
            yield *self.characters(row, first, last, align=align), score

    def spans(
        self, row: Window, outputs: Outputs, *, max_tokens: int, count: int
    ) -> Iterator[tuple[int, int, float]]:
        """Yield (first token, last token, probability) of a window's best spans; see `read`."""
        mask = self.mask(row)
        start, end = self._probabilities(row, outputs, mask)
        yield from best_spans(start * mask, end * mask, max_tokens=max_tokens, count=count)

    def no_answer_score(self, row: Window, outputs: Outputs) -> float:
        """Return the probability that a window has no answer: that of its first token."""
        return self.score(row, outputs, 0, 0)

    def score(self, row: Window, outputs: Outputs, first: int, last: int) -> float:
        """Return the joint probability of one span of tokens."""
        start, end = self._probabilities(row, outputs, self.mask(row))
        return float(start[first] * end[last])

    def mask(self, row: Window) -> Mask:
        """Return which tokens belong to the context. Shape: (tokens,)."""
        return np.array([part == self.context for part in row.encoding.sequence_ids])

    def characters(self, row: Window, first: int, last: int, *, align: bool) -> tuple[int, int]:
        """Return the character span of a token span, extended to whole words if `align` is true."""
        encoding = row.encoding
        words = (encoding.token_to_word(first), encoding.token_to_word(last))
        if not align or None in words:
            return encoding.offsets[first][0], encoding.offsets[last][1]
        spans = [encoding.word_to_chars(word, self.context) for word in words]
        return spans[0][0], spans[1][1]

    def _probabilities(self, row: Window, outputs: Outputs, mask: Mask) -> tuple[Scores, Scores]:
        allowed = mask | (np.array(row.encoding.ids) == self.cls)
        start, end = outputs["start_logits"], outputs["end_logits"]
        return probabilities(start, allowed), probabilities(end, allowed)


def truncate_question(
    tokenizer: PreTrainedTokenizerBase, question: str, max_tokens: int | None
) -> str:
    """Return a question up to the end of its last token within a limit; None for no limit."""
    if max_tokens is None:
        return question
    options = {"add_special_tokens": False, "return_offsets_mapping": True}
    offsets = tokenizer(question, **options)["offset_mapping"]
    return question[: offsets[max_tokens - 1][1]] if len(offsets) > max_tokens else question


def context_windows(
    tokenizer: PreTrainedTokenizerBase,
    texts: tuple[Any, Any],
    encoding: BatchEncoding,
    number: int = 0,
    *,
    context: int = 1,
    size: int,
    stride: int,
    limit: int,
    **options: Any,
) -> list[Window]:
    """Return a question with its context as one row, or as a window for each part of the context.

    Args:
        tokenizer: the tokenizer.
        texts: both texts in their order in a row.
        encoding: the encoding of several such pairs.
        number: the number of the pair in it.
        context: which of the two texts the context is.
        size: the maximum number of tokens in a window.
        stride: overlap of consecutive windows in tokens.
        limit: the maximum number of windows.
        **options: the options of the tokenizer that the encoding was made with.

    Raises:
        RequestTooLarge: the question leaves no room, or there are too many windows.
    """
    length = len(encoding["input_ids"][number])
    if length <= size:
        return [window(encoding, number, tokenizer.model_input_names)]
    sequences = np.array(encoding.encodings[number].sequence_ids, dtype=float)
    repeated = int((sequences != context).sum())
    if size - repeated < MIN_CONTEXT_TOKENS:
        raise TextTooLong(
            f"the question leaves {max(size - repeated, 0)} of {size} tokens for the context"
            "; ask a shorter question or raise max_seq_len."
        )
    return split_windows(
        tokenizer,
        texts,
        length,
        max_length=size,
        repeated=repeated,
        stride=stride,
        limit=limit,
        truncation="only_second" if context else "only_first",
        **options,
    )


def merge_equal_answers(spans: Iterator[tuple[int, int, float]], text: str) -> list[dict[str, Any]]:
    """Return different answers in their order, with the sum of the scores of equal ones."""
    answers: dict[str, dict[str, Any]] = {}
    for start, end, score in spans:
        answer = {"score": 0.0, "start": start, "end": end, "answer": text[start:end]}
        answers.setdefault(text[start:end].lower(), answer)["score"] += score
    return list(answers.values())


Scores = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


def probabilities(logits: npt.NDArray[Any], allowed: Mask) -> Scores:
    """Return softmax over the allowed tokens; 0 for the others. Shape: (tokens,)."""
    return softmax(np.where(allowed, logits, -np.inf))


def best_spans(
    start: Scores, end: Scores, *, max_tokens: int, count: int
) -> Iterator[tuple[int, int, float]]:
    """Yield (first token, last token, joint probability) of the best spans, best first.

    Only the `max_tokens` diagonals of the outer product are computed, not the whole square.

    Args:
        start: probability of each token to be the first. Shape: (tokens,).
        end: probability of each token to be the last. Shape: (tokens,).
        max_tokens: the maximum number of tokens of a span.
        count: the number of spans.
    """
    width = min(max_tokens, len(start))
    ends = np.lib.stride_tricks.sliding_window_view(np.pad(end, (0, width - 1)), width)
    joint = (start[:, None] * ends).ravel()
    found = min(count, joint.size)
    top = np.argpartition(-joint, found - 1)[:found]
    for flat in top[np.argsort(-joint[top], kind="stable")]:
        if joint[flat] > 0:
            first, more = divmod(int(flat), width)
            yield first, first + more, float(joint[flat])
