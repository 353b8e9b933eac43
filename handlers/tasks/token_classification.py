"""Token classification: a text to labelled tokens or entities, with scores and offsets.

    {"inputs": "Ada lives in Paris.", "parameters": {"aggregation_strategy": "simple"}}
    -> [{"entity_group": "PER", "score": 0.99, "word": "ada", "start": 0, "end": 3}, …]

With `stride`, a text longer than the model's limit is read in windows that overlap by this number
of tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator, NonNegativeInt, model_validator
from transformers import BatchEncoding
from typing_extensions import TypedDict

from ..batching.rows import Outputs
from ..batching.tokenization import Window, split_windows, tokenize
from ..errors import RequestError, attempt
from ..types.model_info import LegacyResponse, ModelOutputs, TaskDescription, Wire
from ..types.parameters import ANY, TRUNCATED, AdapterParameters, PipelineNames, in_lower_case
from .bases.labels import softmax
from .bases.text import SingleText, SingleTextTask

Strategy = Literal["none", "simple", "first", "average", "max"]
Scores = npt.NDArray[np.float64]
ToText = Callable[[list[str]], str]


class TokenParameters(AdapterParameters):
    """The token-classification pipeline's own parameters, and `special_tokens`.

    With it every token of the row is returned as in the vocabulary, special tokens included.
    """

    pipeline_names: ClassVar[PipelineNames] = PipelineNames(
        ignored={"batch_size": ANY, "padding": ANY, "truncation": TRUNCATED},
        switches={"grouped_entities": {"aggregation_strategy": "simple"}},
    )

    aggregation_strategy: Annotated[Strategy, BeforeValidator(in_lower_case)] = "none"
    """`none` returns tokens; the others join tokens to entities, as in the transformers
    pipeline."""
    ignore_labels: list[str] = ["O"]
    """Labels that are left out."""
    stride: NonNegativeInt | None = None
    """Reads a long text in windows that overlap by this number of tokens. Needs an
    `aggregation_strategy` other than `none`."""
    special_tokens: bool = False
    """Returns every token of the row, special tokens included."""

    @model_validator(mode="after")
    def _windows_need_entities(self) -> TokenParameters:
        if self.stride is not None and self.aggregation_strategy == "none":
            raise ValueError("stride is given; it needs an aggregation_strategy other than none")
        return self

    @model_validator(mode="after")
    def _entities_have_no_special_tokens(self) -> TokenParameters:
        if self.special_tokens and self.aggregation_strategy != "none":
            raise ValueError("special_tokens is true; it needs aggregation_strategy none")
        return self


class LabelledToken(TypedDict):
    """One token and its label; `start` and `end` count characters of the text."""

    entity: str
    score: float
    index: int
    word: str
    start: int
    end: int


class Entity(TypedDict):
    """Tokens that an aggregation strategy joined."""

    entity_group: str
    score: float
    word: str
    start: int
    end: int


def _legacy_response(tokens: Any) -> list[list[str]]:
    """Return pairs of token and label; the old example has further pairs for padding."""
    return [[token["word"], token["entity"]] for token in tokens]


class Task(SingleTextTask):
    """Token classification; answers as the token-classification pipeline does."""

    needs_offsets = True
    auto_class = "AutoModelForTokenClassification"
    description = TaskDescription(
        Wire(
            inputs=str,
            results=list[LabelledToken | Entity],
            example={"inputs": "Ada Lovelace lived in London."},
            legacy_response=LegacyResponse(
                {
                    "aggregation_strategy": "none",
                    "ignore_labels": [],
                    "special_tokens": True,
                    "stride": None,
                },
                _legacy_response,
            ),
            redaction={"aggregation_strategy": "first", "stride": 16},
        ),
        outputs=ModelOutputs(("logits",), per_token=("logits",)),
        has_labels=True,
        takes_adapters=True,
    )
    parameters = TokenParameters

    def encode(self, inputs: Sequence[SingleText]) -> list[list[Window] | RequestError]:
        encoding = tokenize(self.tokenizer, [(item.text, None) for item in inputs])
        return [
            attempt(self._windows, item, encoding, number) for number, item in enumerate(inputs)
        ]

    def decode(self, item: SingleText, rows: Sequence[Window], outputs: Sequence[Outputs]) -> Any:
        pairs = zip(rows, outputs, strict=True)
        entities = chain.from_iterable(self._entities(item, *pair) for pair in pairs)
        ignored = item.parameters.ignore_labels
        kept = (entity for entity in entities if _label(entity) not in ignored)
        return list(kept) if len(rows) == 1 else without_overlaps(kept)

    def _windows(self, item: SingleText, encoding: BatchEncoding, number: int) -> list[Window]:
        text, stride = (item.text, None), item.parameters.stride
        length, limit = len(encoding["input_ids"][number]), self.max_tokens
        if stride is None or limit is None or length <= limit:
            return self.fit(text, encoding, number, {})
        return split_windows(
            self.tokenizer,
            text,
            length,
            max_length=limit,
            repeated=self.tokenizer.num_special_tokens_to_add(),
            stride=stride,
            limit=self.settings.max_rows,
        )

    def _entities(self, item: SingleText, row: Window, output: Outputs) -> list[dict[str, Any]]:
        strategy = item.parameters.aggregation_strategy
        tokens = list(self._tokens(item, row, output))
        labels = self.labels_of(item.parameters.adapter_id)
        if strategy == "none":
            return label_tokens(tokens, labels)
        to_text = self.tokenizer.convert_tokens_to_string
        return join_entities(tokens, labels, strategy, to_text)

    def _tokens(self, item: SingleText, row: Window, output: Outputs) -> Iterator[Token]:
        encoding, scores = row.encoding, softmax(output["logits"])
        text, raw, unknown_id = (
            item.text,
            item.parameters.special_tokens,
            self._unknown_id,
        )
        # The encoding builds each of its lists anew for each access.
        lists = encoding.offsets, encoding.special_tokens_mask, encoding.ids, encoding.tokens
        columns = zip(*lists, scores, scores.argmax(axis=-1).tolist(), strict=True)
        for index, ((start, end), special, number, token, own, best) in enumerate(columns):
            if special and not raw:
                continue
            unknown = number == unknown_id
            word = text[start:end] if unknown and not raw else token
            inside = not unknown and self._continues(text, word, start, end)
            yield Token(word, own, best, index, start, end, inside)

    def _continues(self, text: str, token: str, start: int, end: int) -> bool:
        """Return whether a token continues a word.

        A prefix such as WordPiece's `##` makes a token longer than its text. Without one, a space
        before a token begins a word, as in the pipeline.
        """
        if self._has_prefix:
            return len(token) != end - start
        return start > 0 and " " not in text[start - 1 : start + 1]

    @cached_property
    def _unknown_id(self) -> int | None:
        number: int | None = self.tokenizer.unk_token_id
        return number

    @cached_property
    def _has_prefix(self) -> bool:
        model = self.tokenizer.backend_tokenizer.model
        return bool(getattr(model, "continuing_subword_prefix", None))


def _label(entity: dict[str, Any]) -> str:
    return str(entity.get("entity_group", entity.get("entity")))


@dataclass(frozen=True)
class Token:
    """A token with the probability of each class; `continues` marks the inside of a word.

    `best` is the number of the likeliest class.
    """

    text: str
    scores: Scores
    best: int
    index: int
    start: int
    end: int
    continues: bool


@dataclass(frozen=True)
class LabelledSpan:
    """A token or word with the one label that it got."""

    text: str
    label: str
    score: float
    start: int
    end: int

    @property
    def kind(self) -> str:
        """The label without its B- or I-."""
        return self.label[2:] if self.label.startswith(("B-", "I-")) else self.label


def label_tokens(tokens: Iterable[Token], labels: Sequence[str]) -> list[dict[str, Any]]:
    """Return each token with its best label: strategy `none`."""
    return [
        {
            "entity": labels[token.best],
            "score": float(token.scores[token.best]),
            "index": token.index,
            "word": token.text,
            "start": token.start,
            "end": token.end,
        }
        for token in tokens
    ]


def join_entities(
    tokens: Sequence[Token], labels: Sequence[str], strategy: Strategy, to_text: ToText
) -> list[dict[str, Any]]:
    """Return runs of one label as entities; `simple` joins tokens, the others whole words."""
    units = [[token] for token in tokens] if strategy == "simple" else _words(tokens)
    spans = [_labelled_span(unit, labels, strategy, to_text) for unit in units]
    return [_entity(run, to_text) for run in _runs(spans)]


def without_overlaps(entities: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the longest of entities that overlap in two windows, of equal ones the best."""
    kept: list[dict[str, Any]] = []
    for entity in sorted(entities, key=lambda entity: entity["start"]):
        if not kept or entity["start"] >= kept[-1]["end"]:
            kept.append(entity)
        elif _size(entity) > _size(kept[-1]):
            kept[-1] = entity
    return kept


def _size(entity: dict[str, Any]) -> tuple[int, float]:
    return entity["end"] - entity["start"], entity["score"]


def _words(tokens: Sequence[Token]) -> list[list[Token]]:
    words: list[list[Token]] = []
    for token in tokens:
        if token.continues and words:
            words[-1].append(token)
        else:
            words.append([token])
    return words


def _labelled_span(
    unit: list[Token], labels: Sequence[str], strategy: Strategy, to_text: ToText
) -> LabelledSpan:
    scores = _word_scores(unit, strategy)
    best = int(scores.argmax())
    texts = [token.text for token in unit]
    text = texts[0] if strategy == "simple" else to_text(texts)
    return LabelledSpan(text, labels[best], float(scores[best]), unit[0].start, unit[-1].end)


def _word_scores(unit: list[Token], strategy: Strategy) -> Scores:
    if strategy == "average":
        return np.asarray(np.mean([token.scores for token in unit], axis=0))
    if strategy == "max":
        return max((token.scores for token in unit), key=lambda scores: scores.max())
    return unit[0].scores


def _runs(spans: Sequence[LabelledSpan]) -> list[list[LabelledSpan]]:
    runs = [[span] for span in spans[:1]]
    for before, span in pairwise(spans):
        if span.kind == before.kind and not span.label.startswith("B-"):
            runs[-1].append(span)
        else:
            runs.append([span])
    return runs


def _entity(run: list[LabelledSpan], to_text: ToText) -> dict[str, Any]:
    return {
        "entity_group": run[0].label.split("-", 1)[-1],
        "score": float(np.mean([span.score for span in run])),
        "word": to_text([span.text for span in run]),
        "start": run[0].start,
        "end": run[-1].end,
    }
