"""Question answering: a question and a context to the span of the context that answers it.

    {"inputs": {"question": "Who sings?", "context": "Nina sings in the bar."}}
    -> {"score": 0.97, "start": 0, "end": 4, "answer": "Nina"}

A context longer than a window is read in overlapping windows with separate scores, as in the
question-answering pipeline of transformers 4, whose parameters these are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import AliasChoices, Field, NonNegativeInt, PositiveInt
from transformers import BatchEncoding, PreTrainedTokenizerBase
from typing_extensions import TypedDict

from ..batching.rows import Outputs
from ..batching.tokenization import Window, split_windows, tokenize, window
from ..errors import BadRequest, RequestError, TextTooLong, attempt
from ..types.model_info import LegacyResponse, ModelOutputs, TaskDescription, Wire
from ..types.parameters import ANY, Parameters, PipelineNames, check_text, json_type
from ..types.request import Request
from .bases.labels import softmax
from .bases.text import TextTask

DEFAULT_WINDOW = 384
MAX_ANSWERS = 1000
MIN_CONTEXT_TOKENS = 8
Scores = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


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
class QuestionWithContext:
    """One question about one context."""

    question: str
    context: str
    parameters: AnswerParameters


def _legacy_response(answer: Any) -> str:
    """Return the text of the answer alone."""
    return str(answer["answer"])


class Task(TextTask[QuestionWithContext, Window]):
    """Extractive question answering; answers as the pipeline of transformers 4 does."""

    needs_offsets = True
    auto_class = "AutoModelForQuestionAnswering"
    description = TaskDescription(
        Wire(
            inputs=QuestionInput,
            results=AnswerSpan | list[AnswerSpan],
            example={"inputs": {"question": "Who sings?", "context": "Nina sings in the bar."}},
            input_columns=(("question", "context"),),
            result_columns=("answer", "score"),
            legacy_response=LegacyResponse({"top_k": 1}, _legacy_response),
        ),
        outputs=ModelOutputs(
            ("start_logits", "end_logits"), per_token=("start_logits", "end_logits")
        ),
    )
    parameters = AnswerParameters

    @classmethod
    def example_inputs(cls, text: str) -> QuestionInput:
        words = text.split()[1:]  # one fewer, for the [SEP] between the two
        middle = min(6, len(words) // 2)
        return {"question": " ".join(words[:middle]), "context": " ".join(words[middle:])}

    def parse(self, request: Request) -> QuestionWithContext:
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
        return QuestionWithContext(
            truncate_question(self.tokenizer, question, parameters.max_question_len),
            context,
            parameters,
        )

    def encode(self, inputs: Sequence[QuestionWithContext]) -> list[list[Window] | RequestError]:
        encoding = tokenize(self.tokenizer, [self.texts(item) for item in inputs])
        return [
            attempt(self._windows, item, encoding, number) for number, item in enumerate(inputs)
        ]

    def decode(
        self, item: QuestionWithContext, rows: Sequence[Window], outputs: Sequence[Outputs]
    ) -> Any:
        best = self.answers(item, rows, outputs)
        return best[0] if item.parameters.top_k == 1 else best

    def answers(
        self, item: QuestionWithContext, rows: Sequence[Window], outputs: Sequence[Outputs]
    ) -> list[dict[str, Any]]:
        """Return the `top_k` best answers over all windows, best first; at least one."""
        windows = list(zip(rows, outputs, strict=True))
        settings = item.parameters
        # Several spans can become one when they are extended to whole words.
        count = 2 * settings.top_k + 10 if settings.align_to_words else settings.top_k
        limits: dict[str, Any] = {
            "max_tokens": settings.max_answer_len,
            "align": settings.align_to_words,
        }
        spans = [self.reader.read(*pair, count=count, **limits) for pair in windows]
        found = merge_equal_answers(chain.from_iterable(spans), item.context)
        if settings.handle_impossible_answer or not found:
            no_answer = min(self.reader.no_answer_score(*pair) for pair in windows)
            found.append({"score": no_answer, "start": 0, "end": 0, "answer": ""})
        return sorted(found, key=lambda answer: -float(answer["score"]))[: settings.top_k]

    @cached_property
    def reader(self) -> AnswerReader:
        """Finds spans in a window."""
        return AnswerReader(self._context, self.tokenizer.cls_token_id)

    def texts(self, item: QuestionWithContext) -> tuple[str, str]:
        """Return question and context in their order in a row."""
        pair = (item.question, item.context)
        return pair if self._context else (item.context, item.question)

    def _windows(
        self, item: QuestionWithContext, encoding: BatchEncoding, number: int
    ) -> list[Window]:
        size = self._window_size(item)
        return context_windows(
            self.tokenizer,
            self.texts(item),
            encoding,
            number,
            context=self._context,
            size=size,
            stride=self._stride(item, size),
            limit=self.settings.max_rows,
        )

    def _window_size(self, item: QuestionWithContext) -> int:
        size = item.parameters.max_seq_len or DEFAULT_WINDOW
        return min(size, self.max_tokens or size)

    def _stride(self, item: QuestionWithContext, size: int) -> int:
        stride = item.parameters.doc_stride
        return min(size // 2, 128) if stride is None else stride

    @property
    def _context(self) -> int:
        """The number of the context among the two texts: 0 for tokenizers that pad on the left."""
        return 1 if self.tokenizer.padding_side == "right" else 0


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
            outputs: its `start_logits` and `end_logits`.
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
        """Return the probability that a window has no answer, which its first token stands for."""
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
        texts: both texts in their order in a row.
        encoding: the encoding of several such pairs.
        number: the number of the pair in it.
        context: which of the two texts the context is.
        stride: overlap of consecutive windows in tokens.
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
