"""A text to the spans that fit labels which the request names, by a GLiNER or a GLiNER2.

    {"inputs": "Ada lives in Paris.", "parameters": {"labels": ["person", "city"]}}
    -> [{"entity_group": "person", "score": 0.98, "word": "Ada", "start": 0, "end": 3}, …]

The labels stand before the text, so the model reads both together. Spans and scores are computed as
by the packages gliner and gliner2; a text that is too long for a row is read in windows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, NotRequired

import numpy as np
import numpy.typing as npt
from pydantic import AliasChoices, Field, NonNegativeInt
from transformers import BatchEncoding, PreTrainedConfig
from typing_extensions import TypedDict

from ..batching.rows import Outputs
from ..batching.words import (
    PROMPTS,
    WORDS,
    Prompt,
    PromptedText,
    WindowLimits,
    Word,
    WordWindow,
    pattern_with_addresses,
    split_words,
    tokenize_words,
)
from ..checkpoints.architecture import base_class_for
from ..checkpoints.checkpoint import Checkpoint
from ..checkpoints.checkpoint_files import GLINER2
from ..checkpoints.gliner import OUTPUT, TOKEN_LEVEL, GlinerCheckpoint, read_head
from ..checkpoints.gliner2 import MARGIN, Gliner2Checkpoint, read_gliner2_head
from ..checkpoints.pooling import PoolingHead
from ..errors import BadRequest, RequestError, RequestTooLarge, Unprocessable, attempt
from ..types.model_info import TEXT_COLUMN, Exports, ModelOutputs, TaskDescription, Wire
from ..types.parameters import ANY, Parameters, PipelineNames, check_text
from ..types.request import Request
from .base import BaseTask
from .bases.labels import sigmoid, with_input_labels
from .bases.text import TextTask
from .token_classification import Entity

LABEL_KEYS = ("labels", "candidate_labels", "candidateLabels")
MAX_LABELS = 1_000
# What GLiNER2 finds by a schema besides entities.
OTHER_PARTS = ("relations", "structures", "json_structures", "classifications")
LOWEST = -1e4
# A text of a GLiNER2 ends with one of these, or with a full stop that the model reads behind it.
ENDS = (".", "!", "?")
Names = Annotated[list[str], Field(max_length=MAX_LABELS)]
Descriptions = Annotated[dict[str, str], Field(max_length=MAX_LABELS)]


class ExtractionParameters(Parameters):
    """Parameters of the package gliner, and of windows."""

    pipeline_names: ClassVar[PipelineNames] = PipelineNames(
        ignored={"batch_size": ANY, "padding": ANY}
    )

    labels: Names | Descriptions | str | None = Field(
        default=None, validation_alias=AliasChoices(*LABEL_KEYS)
    )
    """The labels to find: a list, a text with commas between them, or an object with a description
    of each, which the model reads in its place, and a GLiNER2 with it. Without them, the labels of
    the inputs. Aliases: `candidate_labels`, `candidateLabels`."""
    threshold: float = Field(default=0.5, ge=0, le=1)
    """The score that a span must exceed."""
    flat_ner: bool = True
    """Returns no span within another one. `false` returns such spans, too."""
    multi_label: bool | None = None
    """Returns a span with each of its labels above the threshold, and not with the best alone. By
    default `false`, and of a GLiNER2 `true`, which chooses the spans of each label by itself."""
    stride: NonNegativeInt | None = None
    """Words in which the windows of a long text overlap. Without it, as many as the longest span
    has."""


class TextWithLabels(TypedDict):
    """A text, and the labels to find, if `parameters` does not have them."""

    text: str
    labels: NotRequired[str | list[str] | dict[str, str]]
    candidate_labels: NotRequired[str | list[str]]


@dataclass(frozen=True)
class ExtractionInput:
    """A text, its words, and its labels.

    Attributes:
        labels: the name of each label.
        prompts: what the model reads for each.
        read: what the model reads for each word.
    """

    text: str
    words: Sequence[Word]
    labels: Sequence[str]
    prompts: Sequence[str]
    parameters: ExtractionParameters
    read: Sequence[str]


class Task(TextTask[ExtractionInput, WordWindow]):
    """Spans with labels that a request names."""

    needs_offsets = True
    # Whether special tokens are around a prompt and a text.
    is_framed = True
    checkpoint: GlinerCheckpoint | Gliner2Checkpoint
    checkpoint_class = GlinerCheckpoint
    checkpoint_classes: ClassVar[Mapping[str, type[Checkpoint]]] = {GLINER2: Gliner2Checkpoint}
    auto_class = "AutoModel"
    description = TaskDescription(
        Wire(
            inputs=str | TextWithLabels,
            results=list[Entity],
            example={"inputs": {"text": "Ada Lovelace lived in London.", "labels": "person, city"}},
            input_columns=(("text", "labels"), TEXT_COLUMN),
            redaction={},
        ),
        outputs=ModelOutputs((OUTPUT,), per_token=(OUTPUT,)),
        exports=Exports(supported=False),
    )
    parameters = ExtractionParameters

    @classmethod
    def auto_class_for(cls, config: PreTrainedConfig) -> str:
        return base_class_for(config)

    @classmethod
    def example_inputs(cls, text: str) -> TextWithLabels:
        return {"text": text, "labels": "person"}

    @classmethod
    def for_checkpoint(cls, checkpoint: Checkpoint) -> type[BaseTask[Any, Any]]:
        """Return the class for a GLiNER or a GLiNER2."""
        return Gliner2Task if isinstance(checkpoint, Gliner2Checkpoint) else cls

    @property
    def reduction(self) -> Callable[[], PoolingHead]:
        checkpoint = self.checkpoint
        if isinstance(checkpoint, Gliner2Checkpoint):
            return lambda: read_gliner2_head(checkpoint)
        return lambda: read_head(checkpoint.directory, checkpoint.head)

    @property
    def truncation(self) -> bool:
        """Whether a text that is too long is truncated: it is read in windows."""
        return False

    def parse(self, request: Request) -> ExtractionInput:
        check_finds_entities(request)
        inputs, given = split_labels(request.inputs)
        name = "text" if isinstance(request.inputs, dict) else "inputs"
        text = check_text(inputs, name, self.max_characters)
        parameters: ExtractionParameters = self.read_parameters(
            with_input_labels(dict(request.parameters), given, LABEL_KEYS)
        )
        labels = read_labels(
            parameters.labels, min(self.settings.max_rows, MAX_LABELS), self.max_characters
        )
        words, read = self.words_of(text)
        return ExtractionInput(text, words, list(labels), list(labels.values()), parameters, read)

    def words_of(self, text: str) -> tuple[list[Word], list[str]]:
        """Return the words of a text, and what the model reads for each."""
        words = split_words(text)
        return words, [text[word.start : word.end] for word in words]

    def encoding_cost(self, item: ExtractionInput) -> int:
        return sum(map(len, item.prompts))

    def encode(self, inputs: Sequence[ExtractionInput]) -> list[list[WordWindow] | RequestError]:
        prompts = [self.checkpoint.prompt(item.labels, item.prompts) for item in inputs]
        texts = [[*prompt.words, *item.read] for prompt, item in zip(prompts, inputs, strict=True)]
        encoding = tokenize_words(self.tokenizer, texts, framed=self.is_framed)
        return [
            attempt(self._windows, item, prompt, encoding, number)
            for number, (item, prompt) in enumerate(zip(inputs, prompts, strict=True))
        ]

    def postprocess(self, row: Any, outputs: Outputs) -> Outputs:
        """Return the logits of the words of a row for the labels of its request.

        A word without tokens is in no span. Rows of the warm-up have no text.
        """
        if not isinstance(row, WordWindow):
            return outputs
        numbers = np.asarray(row.features[WORDS])
        labels = self.label_count(row)
        logits = np.asarray(outputs[OUTPUT], dtype=np.float32)
        own = logits[..., :labels, :] if self.reads_words else logits[..., :labels]
        found = np.full((row.count, *own.shape[1:]), -np.inf, dtype=np.float32)
        (slots,) = np.nonzero(numbers)
        found[numbers[slots] - 1] = own[slots]
        return {OUTPUT: found}

    def label_count(self, row: WordWindow) -> int:
        """Return the number of labels that a row has."""
        return max(row.features[PROMPTS])

    def decision_scores(self, outputs: Outputs) -> Outputs:
        """Return the scores of two decisions for each logit: that it is no entity, and that it is.

        Shape: (…, 2).
        """
        # A word without tokens has no finite logit.
        logits = np.maximum(outputs[OUTPUT], LOWEST)
        return {OUTPUT: np.stack([np.zeros_like(logits), logits], axis=-1)}

    def decode(
        self, item: ExtractionInput, rows: Sequence[WordWindow], outputs: Sequence[Outputs]
    ) -> list[Entity]:
        return [self.entity(item, span) for span in self.spans(item, rows, outputs)]

    def spans(
        self, item: ExtractionInput, rows: Sequence[WordWindow], outputs: Sequence[Outputs]
    ) -> list[WordSpan]:
        """Return the spans of a text above the threshold, without those that overlap."""
        parameters = item.parameters
        windows = [
            (row.first, row.count, row.is_last, self.found(output, parameters.threshold))
            for row, output in zip(rows, outputs, strict=True)
        ]
        check_candidates(sum(len(scores) for *_, (_, scores) in windows))
        return self.best(joined(windows), item)

    def best(self, candidates: Iterable[WordSpan], item: ExtractionInput) -> list[WordSpan]:
        """Return the best of spans that overlap."""
        return best_spans(
            candidates,
            len(item.words),
            flat=item.parameters.flat_ner,
            multi_label=bool(item.parameters.multi_label),
        )

    def entity(self, item: ExtractionInput, span: WordSpan) -> Entity:
        """Return a span as a result has it."""
        start, end = item.words[span.first].start, item.words[span.last].end
        return {
            "entity_group": item.labels[span.label],
            "score": span.score,
            "word": item.text[start:end],
            "start": start,
            "end": end,
        }

    @property
    def reads_words(self) -> bool:
        """Whether words are scored as parts of spans, and not spans."""
        return self.checkpoint.head.span_mode == TOKEN_LEVEL

    def found(self, outputs: Outputs, threshold: float) -> Found:
        """Return the spans of a window above a threshold."""
        read = spans_of_words if self.reads_words else spans_of_widths
        return read(outputs[OUTPUT], threshold)

    def _windows(
        self, item: ExtractionInput, prompt: Prompt, encoding: BatchEncoding, number: int
    ) -> list[WordWindow]:
        head, stride = self.checkpoint.head, item.parameters.stride
        text = PromptedText.of(
            encoding,
            number,
            self.tokenizer.model_input_names,
            item.words,
            prompts=prompt.read,
            prompt=len(prompt.words),
            pooling=head.subtoken_pooling,
            behind=not head.embed_ent_token,
        )
        limits = WindowLimits(
            self.max_tokens,
            head.max_len,
            head.max_width if stride is None else stride,
            self.settings.max_rows,
        )
        return text.windows(limits)


class Gliner2Task(Task):
    """Spans of a GLiNER2, which reads a text in lower case, with a full stop at its end."""

    is_framed = False
    description = replace(
        Task.description, outputs=ModelOutputs((OUTPUT, MARGIN), per_token=(OUTPUT, MARGIN))
    )

    def words_of(self, text: str) -> tuple[list[Word], list[str]]:
        stripped = text.rstrip()
        whole, length = text if stripped.endswith(ENDS) else f"{text}.", len(stripped)
        words = split_words(whole, pattern_with_addresses())
        read = [whole[word.start : word.end].lower() for word in words]
        return [Word(min(word.start, length), min(word.end, length)) for word in words], read

    def label_count(self, row: WordWindow) -> int:
        return max(row.features[PROMPTS]) - 1

    def postprocess(self, row: Any, outputs: Outputs) -> Outputs:
        """Return the logits of the words of a row, and whether the text has entities."""
        if not isinstance(row, WordWindow):
            return outputs
        slot = row.features[PROMPTS].index(1)
        margin = np.array(outputs[MARGIN][slot], dtype=np.float32)
        return {**super().postprocess(row, outputs), MARGIN: margin}

    def decision_scores(self, outputs: Outputs) -> Outputs:
        margin = outputs[MARGIN]
        scores = np.stack([np.zeros_like(margin), margin], axis=-1)
        return {**super().decision_scores(outputs), MARGIN: scores}

    def found(self, outputs: Outputs, threshold: float) -> Found:
        """Return the spans of a window above a threshold; none where the text has no entities."""
        if outputs[MARGIN].item() <= 0:
            return np.zeros((0, 3), dtype=np.int64), np.zeros(0, dtype=np.float32)
        return super().found(outputs, threshold)

    def best(self, candidates: Iterable[WordSpan], item: ExtractionInput) -> list[WordSpan]:
        if item.parameters.multi_label is False:
            chosen = super().best(candidates, item)
        else:
            chosen = best_spans_of_labels(
                candidates, len(item.words), flat=item.parameters.flat_ner
            )
        # The full stop that the model reads behind a text is no entity of the text.
        words = item.words
        return [span for span in chosen if words[span.last].end > words[span.first].start]


def check_finds_entities(request: Request) -> None:
    """Check that a request asks for entities alone, and for no other part of a schema.

    Raises:
        Unprocessable: it asks for another one.
    """
    inputs = request.inputs if isinstance(request.inputs, dict) else {}
    given = {**inputs, **request.parameters}
    asked = next((name for name in OTHER_PARTS if given.get(name) is not None), None)
    if asked is not None:
        raise Unprocessable(f"{asked}: this mode finds entities alone; send labels, without it.")


def split_labels(inputs: Any) -> tuple[Any, dict[str, Any]]:
    """Return the text of inputs, and the labels among the keys of an object.

    Raises:
        BadRequest: it has other keys.
    """
    if not isinstance(inputs, dict):
        return inputs, {}
    labels = {key: value for key, value in inputs.items() if key in LABEL_KEYS}
    if len(inputs) != len(labels) + 1 or "text" not in inputs:
        raise BadRequest('inputs must be a text or {"text": …, "labels": […]}.')
    return inputs["text"], labels


def read_labels(
    given: Sequence[str] | Mapping[str, str] | str | None, max_labels: int, max_characters: int
) -> dict[str, str]:
    """Return what the model reads for each label, by their names; each once.

    Raises:
        BadRequest: there are none, or one is empty.
        RequestTooLarge: there are too many, or one is too long.
    """
    if given is None:
        raise BadRequest("parameters has no labels; send the labels to find.")
    if isinstance(given, str):
        given = [label.strip() for label in given.split(",") if label.strip()]
    named = dict(given) if isinstance(given, Mapping) else {label: label for label in given}
    if not named:
        raise BadRequest("labels is empty; send at least one label.")
    if len(named) > max_labels:
        raise RequestTooLarge(
            f"labels has {len(named):,} labels, and this model takes {max_labels:,} a request; send"
            " fewer."
        )
    for name, prompt in named.items():
        check_text(name, "labels", max_characters)
        check_text(prompt, "labels", max_characters)
    return named


# Spans above the threshold of a request, among which the best are chosen one by one.
MAX_CANDIDATES = 200_000
# Lines of the logits of a word by its place in a span.
FIRST, LAST, INSIDE = range(3)

Logits = npt.NDArray[np.float32]
Scores = npt.NDArray[np.float32]
# First word, last word and label of spans, and the score of each.
Found = tuple[npt.NDArray[np.int64], Scores]


@dataclass(frozen=True)
class WordSpan:
    """A span of words with its label; `last` is the number of its last word.

    Attributes:
        label: the number of its label.
    """

    first: int
    last: int
    label: int
    score: float


def spans_of_widths(logits: Logits, threshold: float) -> Found:
    """Return the spans of a window above a threshold, by the logits of each first word and width.

    Args:
        logits: Shape: (words, widths, labels).

    Raises:
        RequestTooLarge: there are too many.
    """
    scores = _scores(logits)
    count = len(scores)
    places = np.argwhere(scores > threshold)
    places = places[places[:, 0] + places[:, 1] < count]
    check_candidates(len(places))
    first, width, label = places.T
    return np.stack([first, first + width, label], 1), scores[tuple(places.T)]


def spans_of_words(logits: Logits, threshold: float) -> Found:
    """Return the spans of a window above a threshold, by the logits of each word of a span.

    A span is as sure as the least sure of its words, of which the first and the last are read
    twice: as such, and as any word of it.

    Args:
        logits: Shape: (words, labels, 3).

    Raises:
        RequestTooLarge: there are too many.
    """
    scores = _scores(logits)
    places: list[tuple[int, int, int]] = []
    found: list[float] = []
    for first, label in np.argwhere(scores[..., FIRST] > threshold).tolist():
        inside = scores[first:, label, INSIDE]
        outside = np.flatnonzero(inside < threshold)
        run = inside[: outside[0]] if len(outside) else inside
        last = np.flatnonzero(scores[first : first + len(run), label, LAST] > threshold)
        least = np.minimum.accumulate(run)[last]
        least = np.minimum(least, scores[first, label, FIRST])
        least = np.minimum(least, scores[first + last, label, LAST])
        places += [(first, int(each), label) for each in first + last]
        found += least.tolist()
        check_candidates(len(places))
    return np.array(places, dtype=np.int64).reshape(-1, 3), np.array(found, dtype=np.float32)


def _scores(logits: Logits) -> Scores:
    """Return probabilities in float32: of two that are equal there, the first span is better."""
    return sigmoid(logits).astype(np.float32)


def check_candidates(count: int) -> None:
    """Check how many spans are above a threshold.

    Raises:
        RequestTooLarge: there are too many.
    """
    if count > MAX_CANDIDATES:
        raise RequestTooLarge(
            f"{count:,} spans are above the threshold, and this model takes {MAX_CANDIDATES:,};"
            " send a higher threshold, or fewer labels."
        )


def best_spans(
    candidates: Iterable[WordSpan], words: int, *, flat: bool, multi_label: bool
) -> list[WordSpan]:
    """Return the best of spans that overlap, in the order of their first words.

    The best span is taken first, and spans that overlap with it are left out; then the best of the
    others, and so on.

    Args:
        words: the number of words of the text.
        flat: whether a span within another one overlaps with it, too.
        multi_label: whether a span may have several labels.
    """
    chosen = _Flat(words) if flat else _Nested(words)
    taken: set[tuple[int, int]] = set()
    kept = []
    for span in sorted(candidates, key=lambda span: -span.score):
        place = (span.first, span.last)
        is_free = multi_label if place in taken else chosen.is_free(*place)
        if is_free:
            taken.add(place)
            chosen.take(*place)
            kept.append(span)
    return sorted(kept, key=lambda span: span.first)


def best_spans_of_labels(
    candidates: Iterable[WordSpan], words: int, *, flat: bool
) -> list[WordSpan]:
    """Return the best of spans that overlap and have the same label.

    The arguments are the arguments of :func:`best_spans`.
    """
    of_labels: dict[int, list[WordSpan]] = {}
    for span in candidates:
        of_labels.setdefault(span.label, []).append(span)
    kept = (
        span
        for _, found in sorted(of_labels.items())
        for span in best_spans(found, words, flat=flat, multi_label=False)
    )
    return sorted(kept, key=lambda span: span.first)


class _Flat:
    """The words of spans, none of which is in two of them."""

    def __init__(self, words: int) -> None:
        self._taken = np.zeros(words, dtype=bool)

    def is_free(self, first: int, last: int) -> bool:
        return not self._taken[first : last + 1].any()

    def take(self, first: int, last: int) -> None:
        self._taken[first : last + 1] = True


class _Nested:
    """Spans, of which one may be within another, and none begins in another and ends behind it."""

    def __init__(self, words: int) -> None:
        # The last word of the longest span that begins with a word, and the first of one that ends.
        self._last = np.full(words, -1)
        self._first = np.full(words, words)

    def is_free(self, first: int, last: int) -> bool:
        crosses = (self._last[first + 1 : last + 1] > last).any()
        return not (crosses or (self._first[first:last] < first).any())

    def take(self, first: int, last: int) -> None:
        self._last[first] = max(self._last[first], last)
        self._first[last] = min(self._first[last], first)


def joined(windows: Sequence[tuple[int, int, bool, Found]]) -> Iterator[WordSpan]:
    """Yield the spans of all windows of a text by the numbers of the words in the text.

    Of a span in two windows, the better score is kept. A span that touches the border of a window
    may go on behind it: where the next window has all of it, that one decides.

    Args:
        windows: the first word and the number of words of each, whether it is the last one, and its
            spans.
    """
    found: dict[tuple[int, int, int], float] = {}
    for number, (start, count, is_last, (places, scores)) in enumerate(windows):
        following = None if is_last else windows[number + 1][0] - start
        before = None
        if number:
            before = windows[number - 1][0] + windows[number - 1][1] - start
        for (first, last, label), score in zip(places.tolist(), scores.tolist(), strict=True):
            if following is not None and last == count - 1 and first >= following:
                continue
            if before is not None and first == 0 and last < before:
                continue
            key = (start + first, start + last, label)
            found[key] = max(score, found.get(key, 0.0))
    for (first, last, label), score in found.items():
        yield WordSpan(first, last, label, score)
