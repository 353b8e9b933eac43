"""A text to the spans that fit labels which the request names, by a GLiNER.

    {"inputs": "Ada lives in Paris.", "parameters": {"labels": ["person", "city"]}}
    -> [{"entity_group": "person", "score": 0.98, "word": "Ada", "start": 0, "end": 3}, …]

The labels stand before the text, so the model reads both together. Spans and scores are computed as
by the package gliner; a text that is too long for a row is read in windows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NotRequired

import numpy as np
from pydantic import AliasChoices, Field, NonNegativeInt
from transformers import BatchEncoding, PreTrainedConfig
from typing_extensions import TypedDict

from ..batching.rows import Outputs
from ..batching.words import (
    PROMPTS,
    WORDS,
    PromptedText,
    WindowLimits,
    Word,
    WordWindow,
    split_words,
    tokenize_words,
)
from ..checkpoints.architecture import base_class_for
from ..checkpoints.gliner import TOKEN_LEVEL, GlinerCheckpoint
from ..checkpoints.gliner_head import OUTPUT, read_head
from ..checkpoints.pooling import PoolingHead
from ..errors import BadRequest, RequestError, RequestTooLarge, attempt
from ..types.model_info import TEXT_COLUMN, Exports, ModelOutputs, TaskDescription, Wire
from ..types.parameters import ANY, Parameters, PipelineNames, check_text
from ..types.request import Request
from .bases.spans import (
    Found,
    WordSpan,
    best_spans,
    check_candidates,
    joined,
    spans_of_widths,
    spans_of_words,
)
from .bases.text import TextTask
from .token_classification import Entity

LABEL_KEYS = ("labels", "candidate_labels", "candidateLabels")
MAX_LABELS = 1_000
LOWEST = -1e4
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
    of each, which the model reads in its place. Without them, the labels of the inputs. Aliases:
    `candidate_labels`, `candidateLabels`."""
    threshold: float = Field(default=0.5, ge=0, le=1)
    """The score that a span must exceed."""
    flat_ner: bool = True
    """Returns no span within another one. `false` returns such spans, too."""
    multi_label: bool = False
    """Returns a span with each of its labels above the threshold, and not with the best alone."""
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
    """

    text: str
    words: Sequence[Word]
    labels: Sequence[str]
    prompts: Sequence[str]
    parameters: ExtractionParameters


class Task(TextTask[ExtractionInput, WordWindow]):
    """Spans with labels that a request names."""

    needs_offsets = True
    checkpoint: GlinerCheckpoint
    checkpoint_class = GlinerCheckpoint
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

    @property
    def reduction(self) -> Callable[[], PoolingHead]:
        return lambda: read_head(self.checkpoint.directory, self.checkpoint.head)

    @property
    def truncation(self) -> bool:
        """Whether a text that is too long is truncated: it is read in windows."""
        return False

    def parse(self, request: Request) -> ExtractionInput:
        inputs, given = split_labels(request.inputs)
        name = "text" if isinstance(request.inputs, dict) else "inputs"
        text = check_text(inputs, name, self.max_characters)
        parameters: ExtractionParameters = self.read_parameters(
            with_labels(dict(request.parameters), given)
        )
        labels = read_labels(
            parameters.labels, min(self.settings.max_rows, MAX_LABELS), self.max_characters
        )
        return ExtractionInput(
            text, split_words(text), list(labels), list(labels.values()), parameters
        )

    def encoding_cost(self, item: ExtractionInput) -> int:
        return sum(map(len, item.prompts))

    def encode(self, inputs: Sequence[ExtractionInput]) -> list[list[WordWindow] | RequestError]:
        prompts = [self._prompt(item) for item in inputs]
        encoding = tokenize_words(
            self.tokenizer,
            [
                [*prompt, *(item.text[word.start : word.end] for word in item.words)]
                for prompt, item in zip(prompts, inputs, strict=True)
            ],
        )
        return [
            attempt(self._windows, item, len(prompt), encoding, number)
            for number, (item, prompt) in enumerate(zip(inputs, prompts, strict=True))
        ]

    def postprocess(self, row: Any, outputs: Outputs) -> Outputs:
        """Return the logits of the words of a row for the labels of its request.

        A word without tokens is in no span. Rows of the warm-up have no text.
        """
        if not isinstance(row, WordWindow):
            return outputs
        numbers = np.asarray(row.features[WORDS])
        labels = max(row.features[PROMPTS])
        logits = np.asarray(outputs[OUTPUT], dtype=np.float32)
        own = logits[..., :labels, :] if self.reads_words else logits[..., :labels]
        found = np.full((row.count, *own.shape[1:]), -np.inf, dtype=np.float32)
        (slots,) = np.nonzero(numbers)
        found[numbers[slots] - 1] = own[slots]
        return {OUTPUT: found}

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
            (row.first, row.count, row.is_last, self._found(output, parameters.threshold))
            for row, output in zip(rows, outputs, strict=True)
        ]
        check_candidates(sum(len(scores) for *_, (_, scores) in windows))
        return best_spans(
            joined(windows),
            len(item.words),
            flat=parameters.flat_ner,
            multi_label=parameters.multi_label,
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

    def _found(self, outputs: Outputs, threshold: float) -> Found:
        read = spans_of_words if self.reads_words else spans_of_widths
        return read(outputs[OUTPUT], threshold)

    def _prompt(self, item: ExtractionInput) -> list[str]:
        """Return the words before the words of the text."""
        head = self.checkpoint.head
        marked = [each for prompt in item.prompts for each in (head.ent_token, prompt)]
        return [*marked, head.sep_token]

    def _windows(
        self, item: ExtractionInput, prompt: int, encoding: BatchEncoding, number: int
    ) -> list[WordWindow]:
        head, stride = self.checkpoint.head, item.parameters.stride
        text = PromptedText.of(
            encoding,
            number,
            self.tokenizer.model_input_names,
            item.words,
            prompts=range(0, prompt - 1, 2),
            prompt=prompt,
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


def with_labels(parameters: dict[str, Any], labels: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a request, with the labels of its inputs where they have none."""
    given = {name: each for name, each in parameters.items() if each is not None}
    return given if not given.keys().isdisjoint(LABEL_KEYS) else {**labels, **given}


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
