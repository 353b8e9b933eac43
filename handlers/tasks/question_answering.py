"""A question and a context to the span of the context that answers it.

    {"inputs": {"question": "Who sings?", "context": "Nina sings in the bar."}}
    -> {"score": 0.97, "start": 0, "end": 4, "answer": "Nina"}

A context longer than a window is read in overlapping windows; scores are each window's own, as in
the question-answering pipeline of transformers 4, whose parameters these are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import AliasChoices, Field, NonNegativeInt, PositiveInt
from transformers import BatchEncoding

from handlers.attempts import attempt
from handlers.errors import BadRequest, RequestError, RequestTooLarge
from handlers.parameters import Parameters
from handlers.requests import Request
from handlers.rows import Outputs
from handlers.spans import Mask, best_spans, probabilities
from handlers.tasks.base import BaseTask
from handlers.texts import check_text, kind_of
from handlers.tokenize import Text, tokenize
from handlers.windows import Window, window

WINDOW = 384
FEWEST_CONTEXT_TOKENS = 8


class AnswerParameters(Parameters):
    """The question-answering pipeline's own parameters."""

    top_k: PositiveInt = Field(default=1, validation_alias=AliasChoices("top_k", "topk"))
    max_answer_len: PositiveInt = 15
    max_seq_len: PositiveInt | None = None
    doc_stride: NonNegativeInt | None = None
    handle_impossible_answer: bool = False
    align_to_words: bool = True


@dataclass(frozen=True)
class Question:
    """One question about one context."""

    question: str
    context: str
    parameters: AnswerParameters


class Task(BaseTask[Question, Window]):
    """Extractive question answering; answers as the pipeline of transformers 4 does."""

    auto_class = "AutoModelForQuestionAnswering"
    outputs = ("start_logits", "end_logits")
    per_token = ("start_logits", "end_logits")
    parameters = AnswerParameters

    def parse(self, request: Request) -> Question:
        inputs = request.inputs
        if not isinstance(inputs, dict):
            raise BadRequest(
                f'inputs must be {{"question": …, "context": …}}, and is {kind_of(inputs)}.'
            )
        for key in ("question", "context"):
            if key not in inputs:
                raise BadRequest(f"inputs has no {key}; send both a question and a context.")
        question = check_text(inputs["question"], "question", self.longest_text)
        context = check_text(inputs["context"], "context", self.longest_text)
        return Question(question, context, self.read_parameters(request.parameters))

    def encode(self, queries: Sequence[Question]) -> list[list[Window] | RequestError]:
        encoding = tokenize(self.tokenizer, [self._texts(query) for query in queries])
        return [
            attempt(self._fit_windows, query, encoding, number)
            for number, query in enumerate(queries)
        ]

    def decode(self, query: Question, rows: Sequence[Window], outputs: Sequence[Outputs]) -> Any:
        answers: dict[str, dict[str, Any]] = {}
        nothing = 1.0
        for row, output in zip(rows, outputs, strict=True):
            nothing = min(nothing, self._read(query, row, output, answers))
        ranked = list(answers.values())
        if query.parameters.handle_impossible_answer or not ranked:
            ranked.append({"score": nothing, "start": 0, "end": 0, "answer": ""})
        ranked.sort(key=lambda answer: -float(answer["score"]))
        best = ranked[: query.parameters.top_k]
        return best[0] if query.parameters.top_k == 1 else best

    def _read(
        self, query: Question, row: Window, output: Outputs, answers: dict[str, dict[str, Any]]
    ) -> float:
        """Add a window's spans to the answers; returns its probability of having none.

        Spans that stand for the same words add up, as in the pipeline.
        """
        context = self._context_mask(row)
        allowed = context | (np.array(row.encoding.ids) == self.tokenizer.cls_token_id)
        start = probabilities(output["start_logits"], allowed)
        end = probabilities(output["end_logits"], allowed)
        nothing = float(start[0] * end[0])
        limits = {"longest": query.parameters.max_answer_len, "count": _candidates(query)}
        for first, last, score in best_spans(start * context, end * context, **limits):
            place = self._characters(row, first, last, query.parameters.align_to_words)
            text = query.context[slice(*place)]
            answer = {"score": 0.0, "start": place[0], "end": place[1], "answer": text}
            answers.setdefault(text.lower(), answer)["score"] += score
        return nothing

    def _fit_windows(self, query: Question, encoding: BatchEncoding, number: int) -> list[Window]:
        names = self.tokenizer.model_input_names
        size = self._window_size(query)
        if len(encoding["input_ids"][number]) <= size:
            return [window(encoding, number, names)]
        sequences = np.array(encoding.encodings[number].sequence_ids, dtype=float)
        room = size - int((sequences != self._context).sum())
        if room < FEWEST_CONTEXT_TOKENS:
            raise RequestTooLarge(
                f"the question leaves {max(room, 0)} of {size} tokens for the context"
                "; ask a shorter question or raise max_seq_len."
            )
        parts = tokenize(
            self.tokenizer,
            [self._texts(query)],
            truncation="only_second" if self._context else "only_first",
            max_length=size,
            stride=min(self._stride(query, size), room - 1),
            return_overflowing_tokens=True,
        )
        self._check_rows(len(parts["input_ids"]), size)
        return [window(parts, part, names) for part in range(len(parts["input_ids"]))]

    def _check_rows(self, count: int, size: int) -> None:
        if count > self.settings.max_rows:
            raise RequestTooLarge(
                f"the context makes {count} windows of {size} tokens, and this model takes "
                f"{self.settings.max_rows} a request; send a shorter context."
            )

    def _window_size(self, query: Question) -> int:
        wanted = query.parameters.max_seq_len or WINDOW
        return min(wanted, self.longest or wanted)

    def _stride(self, query: Question, size: int) -> int:
        asked = query.parameters.doc_stride
        return min(size // 2, 128) if asked is None else asked

    @property
    def _context(self) -> int:
        """Which of the two texts the context is: the second, but for left-padding tokenizers."""
        return 1 if self.tokenizer.padding_side == "right" else 0

    def _texts(self, query: Question) -> Text:
        pair = (query.question, query.context)
        return pair if self._context else (query.context, query.question)

    def _context_mask(self, row: Window) -> Mask:
        return np.array([part == self._context for part in row.encoding.sequence_ids])

    def _characters(self, row: Window, first: int, last: int, align: bool) -> tuple[int, int]:
        """Return the character span of a token span, widened to whole words if asked."""
        encoding = row.encoding
        words = (encoding.token_to_word(first), encoding.token_to_word(last))
        if not align or None in words:
            return encoding.offsets[first][0], encoding.offsets[last][1]
        spans = [encoding.word_to_chars(word, self._context) for word in words]
        return spans[0][0], spans[1][1]


def _candidates(query: Question) -> int:
    """Return how many spans a window proposes; several can become one when widened to words."""
    wanted = query.parameters.top_k
    return 2 * wanted + 10 if query.parameters.align_to_words else wanted
