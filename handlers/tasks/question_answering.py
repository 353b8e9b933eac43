"""Question answering: a question and a context to the span of the context that answers it.

    {"inputs": {"question": "Who sings?", "context": "Nina sings in the bar."}}
    -> {"score": 0.97, "start": 0, "end": 4, "answer": "Nina"}

A context longer than a window is read in overlapping windows with separate scores, as in the
question-answering pipeline of transformers 4, whose parameters these are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar

from pydantic import NonNegativeInt, PositiveInt
from transformers import BatchEncoding
from typing_extensions import TypedDict

from handlers.batching.rows import Outputs
from handlers.batching.tokenization import Window, tokenize
from handlers.errors import BadRequest, RequestError, attempt
from handlers.tasks._answer_spans import (
    AnswerReader,
    SpanParameters,
    context_windows,
    merge_equal_answers,
    truncate_question,
)
from handlers.tasks._text import TextTask
from handlers.types.model_info import LegacyResponse
from handlers.types.parameters import ANY, PipelineNames
from handlers.types.request import Request
from handlers.types.text_checks import check_text, json_type

DEFAULT_WINDOW = 384


class AnswerParameters(SpanParameters):
    """The question-answering pipeline's own parameters."""

    pipeline_names: ClassVar[PipelineNames] = PipelineNames(
        ignored={"batch_size": ANY, "padding": ANY}
    )

    max_seq_len: PositiveInt | None = None
    """Tokens of one window: question, context and special tokens. Without it, 384."""
    doc_stride: NonNegativeInt | None = None
    """Overlap of two windows in tokens. Without it, half a window, 128 at most."""
    align_to_words: bool = True
    """Extends an answer to whole words."""


class QuestionInput(TypedDict):
    """A question, and the text that may hold its answer."""

    question: str
    context: str


class AnswerSpan(TypedDict):
    """A span of the context; `start` and `end` count its characters."""

    score: float
    start: int
    end: int
    answer: str


@dataclass(frozen=True)
class QuestionQuery:
    """One question about one context."""

    question: str
    context: str
    parameters: AnswerParameters


def _legacy_response(answer: Any) -> str:
    """Return the text of the answer alone."""
    return str(answer["answer"])


class Task(TextTask[QuestionQuery, Window]):
    """Extractive question answering; answers as the pipeline of transformers 4 does."""

    needs_offsets = True
    auto_class = "AutoModelForQuestionAnswering"
    outputs = ("start_logits", "end_logits")
    per_token = ("start_logits", "end_logits")
    parameters = AnswerParameters
    inputs = QuestionInput
    results = AnswerSpan | list[AnswerSpan]
    sample: ClassVar[Mapping[str, Any]] = {
        "inputs": {"question": "Who sings?", "context": "Nina sings in the bar."}
    }
    input_columns = (("question", "context"),)
    result_columns = ("answer", "score")
    legacy_response = LegacyResponse({"top_k": 1}, _legacy_response)

    @classmethod
    def example_inputs(cls, text: str) -> QuestionInput:
        words = text.split()[1:]  # one fewer, for the [SEP] between the two
        middle = min(6, len(words) // 2)
        return {"question": " ".join(words[:middle]), "context": " ".join(words[middle:])}

    def parse(self, request: Request) -> QuestionQuery:
        inputs = request.inputs
        if not isinstance(inputs, dict):
            raise BadRequest(
                f'inputs must be {{"question": …, "context": …}}, and is {json_type(inputs)}.'
            )
        for key in ("question", "context"):
            if key not in inputs:
                raise BadRequest(f"inputs has no {key}; send both a question and a context.")
        parameters: AnswerParameters = self.read_parameters(request.parameters)
        question = check_text(inputs["question"], "question", self.max_characters)
        context = check_text(inputs["context"], "context", self.max_characters)
        return QuestionQuery(
            truncate_question(self.tokenizer, question, parameters.max_question_len),
            context,
            parameters,
        )

    def encode(self, queries: Sequence[QuestionQuery]) -> list[list[Window] | RequestError]:
        encoding = tokenize(self.tokenizer, [self.texts(query) for query in queries])
        return [
            attempt(self._windows, query, encoding, number) for number, query in enumerate(queries)
        ]

    def decode(
        self, query: QuestionQuery, rows: Sequence[Window], outputs: Sequence[Outputs]
    ) -> Any:
        best = self.answers(query, rows, outputs)
        return best[0] if query.parameters.top_k == 1 else best

    def answers(
        self, query: QuestionQuery, rows: Sequence[Window], outputs: Sequence[Outputs]
    ) -> list[dict[str, Any]]:
        """Return the `top_k` best answers over all windows, best first; at least one."""
        windows = list(zip(rows, outputs, strict=True))
        settings = query.parameters
        # Several spans can become one when they are extended to whole words.
        count = 2 * settings.top_k + 10 if settings.align_to_words else settings.top_k
        limits: dict[str, Any] = {
            "max_tokens": settings.max_answer_len,
            "align": settings.align_to_words,
        }
        spans = [self.reader.read(*pair, count=count, **limits) for pair in windows]
        found = merge_equal_answers(chain.from_iterable(spans), query.context)
        if settings.handle_impossible_answer or not found:
            no_answer = min(self.reader.no_answer_score(*pair) for pair in windows)
            found.append({"score": no_answer, "start": 0, "end": 0, "answer": ""})
        return sorted(found, key=lambda answer: -float(answer["score"]))[: settings.top_k]

    @cached_property
    def reader(self) -> AnswerReader:
        """Finds spans in a window."""
        return AnswerReader(self._context, self.tokenizer.cls_token_id)

    def texts(self, query: QuestionQuery) -> tuple[str, str]:
        """Return question and context in their order in a row."""
        pair = (query.question, query.context)
        return pair if self._context else (query.context, query.question)

    def _windows(self, query: QuestionQuery, encoding: BatchEncoding, number: int) -> list[Window]:
        size = self._window_size(query)
        return context_windows(
            self.tokenizer,
            self.texts(query),
            encoding,
            number,
            context=self._context,
            size=size,
            stride=self._stride(query, size),
            limit=self.settings.max_rows,
        )

    def _window_size(self, query: QuestionQuery) -> int:
        size = query.parameters.max_seq_len or DEFAULT_WINDOW
        return min(size, self.max_tokens or size)

    def _stride(self, query: QuestionQuery, size: int) -> int:
        stride = query.parameters.doc_stride
        return min(size // 2, 128) if stride is None else stride

    @property
    def _context(self) -> int:
        """The number of the context among the two texts: 0 for tokenizers that pad on the left."""
        return 1 if self.tokenizer.padding_side == "right" else 0
