"""A query and texts, to the texts in the order of their relevance; or a pair of texts to a score.

{"inputs": {"query": "Who sings?", "texts": ["It rains.", "Nina sings."]}}
-> [{"index": 1, "score": 0.98}, {"index": 0, "score": 0.01}]
{"inputs": {"text": "Who sings?", "text_pair": "Nina sings."}} -> {"score": 0.98}

A reranker reads the query together with each text: a request is a row for each text. Scores are
computed as by sentence-transformers' CrossEncoder; see `handlers/checkpoints/cross_encoder.py`.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import accumulate
from typing import Annotated, Any, ClassVar, NotRequired

import numpy as np
import numpy.typing as npt
from pydantic import AliasChoices, Field, PositiveInt
from transformers import BatchEncoding, PreTrainedConfig
from typing_extensions import TypedDict

from ..batching.padding import RunOptions, error_of_rows, run_padded
from ..batching.rows import MIN_SHARED, Outputs, RowOutcome, after, shared_tokens
from ..batching.tokenization import Window, check_length, lowest_limit, tokenize
from ..checkpoints.architecture import attends_both_ways, base_class_for, is_decoder
from ..checkpoints.checkpoint import Checkpoint
from ..checkpoints.cross_encoder import OUTPUT, CrossEncoder
from ..checkpoints.pooling import PoolingHead
from ..checkpoints.ranking_template import RankingTemplate, WrittenPair, tokens_behind
from ..checkpoints.tokenizer_files import read_in_lower_case
from ..config.handler_section import HandlerSection
from ..config.messages import enumerate_names, quote
from ..errors import RequestError, TextTooLong, Unprocessable, WrongCheckpoint, attempt
from ..model import Model
from ..process.deadline import NO_DEADLINE, Deadline, before
from ..telemetry.metrics import Meter
from ..types.model_info import ModelOutputs, TaskDescription, Wire
from ..types.parameters import (
    ANY,
    AdapterParameters,
    Parameters,
    PipelineNames,
    check_list,
    check_object,
    check_text,
)
from ..types.request import Request
from .base import BaseTask, Label
from .bases.labels import sigmoid, softmax
from .bases.text_pairs import PairEncoding, PairTask, tokens_before, written_row

FORMS = '{"query": …, "texts": […]} or {"text": …, "text_pair": …}'
LISTS = ("texts", "documents")
# Rows of one query have their first tokens computed once where that saves this part of all tokens.
MIN_ROWS, MIN_SAVED = 3, 0.2
Activation = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
# Names are looked up here, and never imported.
ACTIVATIONS: Mapping[str, Activation] = {
    "Identity": np.asarray,
    "ReLU": partial(np.maximum, 0),
    "Sigmoid": sigmoid,
    "Softmax": softmax,
    "Tanh": np.tanh,
}
# The path of a class of torch, where it is defined or as torch.nn exports it.
ACTIVATION_PATH = re.compile(r"torch\.nn(\.modules\.(activation|linear))?\.(?P<name>\w+)")


class RankingParameters(Parameters):
    """Parameters of a ranking."""

    pipeline_names: ClassVar[PipelineNames] = PipelineNames(
        ignored={"batch_size": ANY, "padding": ANY}
    )

    top_n: PositiveInt | None = Field(default=None, validation_alias=AliasChoices("top_n", "top_k"))
    """Number of texts, best first. Without it, all of them. Alias: `top_k`."""
    return_documents: bool = Field(
        default=False, validation_alias=AliasChoices("return_documents", "return_text")
    )
    """Returns each text beside its score. Alias: `return_text`."""


class Document(TypedDict):
    """A text in an object."""

    text: str


class QueryTexts(TypedDict):
    """A query, and the texts to rank; their list is also called `documents`."""

    query: str
    texts: NotRequired[str | list[str | Document]]
    documents: NotRequired[str | list[str | Document]]


class RankedText(TypedDict):
    """A text by its number in the request, and how well it fits the query."""

    index: int
    score: float
    text: NotRequired[str]


class PairParameters(RankingParameters, AdapterParameters):
    """Parameters of a ranking; a pair has `raw_scores`, `truncate` and `max_length` only."""

    raw_scores: bool = False
    """Returns logits. `false` applies the activation of the checkpoint."""
    truncate: bool | None = None
    """Whether a text is cut that is too long together with the query. `false` refuses it. Without
    it, the YAML's `truncation`."""
    max_length: PositiveInt | None = None
    """Cuts a text so that it and the query have this number of tokens, where that is less than the
    model takes."""
    instruction: str | None = Field(default=None, min_length=1)
    """What makes a text fit a query, for rerankers whose template has a place for it. Without it,
    the prompt of `prompt_name`, or what the template has."""
    prompt_name: str | None = None
    """Name of a prompt of the checkpoint, which is the instruction, or precedes the query where
    there is no template. Without it, the default prompt of the checkpoint, if it has one."""


class Pair(TypedDict):
    """A query, and one text."""

    text: str
    text_pair: str


class PairScore(TypedDict):
    """How well a text fits a query."""

    score: float


class PairScores(TypedDict):
    """The score of each label of a pair, in the order of the labels."""

    scores: list[Label]


@dataclass(frozen=True)
class RankingInput:
    """A query and its texts.

    Attributes:
        is_pair: whether the result is a score and not a ranking.
        prompt: the instruction, or what precedes the query where there is no template.
    """

    query: str
    texts: Sequence[str]
    parameters: PairParameters
    is_pair: bool
    prompt: str | None = None


class Task(PairTask[RankingInput]):
    """Ranking of texts by a model that reads each together with the query."""

    truncated_side = 1
    auto_class = "AutoModelForSequenceClassification"
    description = TaskDescription(
        Wire(
            inputs=Pair | QueryTexts | Annotated[list[str], Field(min_length=2, max_length=2)],
            results=list[RankedText] | PairScore | PairScores,
            example={"inputs": {"text": "Who sings?", "text_pair": "Nina sings in the bar."}},
            input_columns=(("text", "text_pair"), *(("query", name) for name in LISTS)),
            takes_pairs=True,
        ),
        outputs=ModelOutputs((OUTPUT,)),
        service="rerank",
        takes_adapters=True,
    )
    parameters = PairParameters

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        self.files = CrossEncoder.read(checkpoint)
        super().__init__(checkpoint, settings)
        self._activation = read_activation(self.files)
        self.labels = _labels(checkpoint, self.files.num_labels)
        self.prompts = sorted(self.files.prompts.texts)
        if self.files.do_lower_case:
            read_in_lower_case(self.tokenizer)

    @classmethod
    def for_checkpoint(cls, checkpoint: Checkpoint) -> type[BaseTask[Any, Any]]:
        """Return the class for a classifier, a model with modules behind it, or a causal model.

        Raises:
            WrongCheckpoint: it is a causal model whose template is not known.
        """
        classes: dict[str, type[Task]] = {"pooled": PooledTask, "logits": CausalTask}
        return classes.get(CrossEncoder.read(checkpoint).kind, cls)

    @property
    def reduction(self) -> Callable[[], PoolingHead] | None:
        return None if self.files.kind == "classifier" else self.files.reduction

    @property
    def max_tokens(self) -> int | None:
        return self.token_limit(self.files.max_length)

    @classmethod
    def example_inputs(cls, text: str) -> Pair:
        words = text.split()[1:]  # one fewer, for the [SEP] between the two
        middle = min(6, len(words) // 2)
        return {"text": " ".join(words[:middle]), "text_pair": " ".join(words[middle:])}

    def parse(self, request: Request) -> RankingInput:
        parameters: PairParameters = self.read_parameters(request.parameters)
        inputs = request.inputs
        if isinstance(inputs, list) and len(inputs) == 2:
            inputs = dict(zip(("text", "text_pair"), inputs, strict=True))
        if isinstance(inputs, dict) and inputs.keys() == {"text", "text_pair"}:
            text, text_pair = (self._checked(inputs[name], name) for name in inputs)
            prompt = self._prompt(parameters)
            return RankingInput(text, [text_pair], parameters, is_pair=True, prompt=prompt)
        return self._ranking(inputs, parameters)

    def pairs(self, item: RankingInput) -> list[tuple[str, str]]:
        query = item.query if self.template else (item.prompt or "") + item.query
        return [(query, text) for text in item.texts]

    def texts_read(self, item: RankingInput, number: int) -> list[str]:
        """Return the query and a text as the model reads them, to which offsets refer."""
        texts = self.pairs(item)[number]
        strips = self.template is not None and self.template.plain.strips
        return [text.strip() if strips else text for text in texts]

    def encode(self, inputs: Sequence[RankingInput]) -> list[list[Window] | RequestError]:
        template = self.template
        if template is None:
            return super().encode(inputs)
        written = [
            [template.write(query, text, item.prompt) for query, text in self.pairs(item)]
            for item in inputs
        ]
        texts = [(each.text, None) for own in written for each in own]
        encoding = tokenize(self.tokenizer, texts, add_special_tokens=False)
        starts = accumulate(map(len, written), initial=0)
        return [
            attempt(self._written_rows, item, template, own, encoding, start)
            for item, own, start in zip(inputs, written, starts, strict=False)
        ]

    def run(
        self,
        model: Model,
        rows: Sequence[Window],
        meter: Meter,
        deadline: Deadline = NO_DEADLINE,
    ) -> Sequence[RowOutcome]:
        """Run rows; what the rows of a query begin with is computed once where that is faster."""
        if not self._shares_prefixes or model.runs_alone or len(rows) < MIN_ROWS:
            return super().run(model, rows, meter, deadline)
        outcomes: dict[int, RowOutcome] = {}
        for group in _by_query(rows):
            found = self._run_after_prefix(model, group, meter, deadline)
            outcomes.update(zip(group.numbers, found, strict=False))
        rest = [number for number in range(len(rows)) if number not in outcomes]
        others = super().run(model, [rows[number] for number in rest], meter, deadline)
        outcomes.update(zip(rest, others, strict=True))
        return [outcomes[number] for number in range(len(rows))]

    @cached_property
    def _shares_prefixes(self) -> bool:
        """Whether pairs are read from left to right, with the query before the text.

        With LoRA adapters, what a query begins with depends on the adapter.
        """
        config = self.checkpoint.config
        return (
            self.template is not None
            and not self.adapters
            and self.reduction is not None
            and is_decoder(config)
            and not attends_both_ways(config)
        )

    def _run_after_prefix(
        self, model: Model, group: _Group, meter: Meter, deadline: Deadline
    ) -> Sequence[RowOutcome]:
        """Return the outcomes of rows; none where they are faster, or only possible, as a whole."""
        if not group.is_faster:
            return []
        try:
            ids = group.rows[0].features["input_ids"][: group.shared]
            prefix = before(deadline, model.read_prefix)(ids)
        except Exception as error:  # noqa: BLE001 - errors of libraries are raised again
            return [error_of_rows(error)] * len(group.rows)
        if prefix is None:
            return []
        meter.count(forwards=1, tokens=group.shared, slots=group.shared)
        return run_padded(
            before(deadline, partial(model.forward_after, prefix)),
            [after(row, group.shared) for row in group.rows],
            RunOptions(
                padding=replace(self.padding, side="right"),
                budget=self.forward_budget(model),
                per_token=(),
                meter=meter,
            ),
        )

    def truncates(self, item: RankingInput) -> bool:
        wanted = item.parameters.truncate
        return self.truncation if wanted is None else wanted

    def length_limit(self, item: RankingInput) -> int | None:
        return lowest_limit(self.max_tokens, item.parameters.max_length)

    def name_of(self, item: RankingInput, number: int) -> str:
        return "text_pair" if item.is_pair else f"texts[{number}]"

    def lack_of_room(self, tokens: int, limit: int) -> str:
        others = "the template" if self.template else "the special ones"
        return (
            f"the query has {tokens:,} tokens with {others}, and this model takes {limit:,}"
            " with a text; shorten the query."
        )

    def decode(self, item: RankingInput, rows: Sequence[Window], outputs: Sequence[Outputs]) -> Any:
        scores = self.scores(item, outputs)
        if item.is_pair:
            return self._pair_result(scores[0])
        return ranked(scores[:, 0].tolist(), item.texts, item.parameters)

    def scores(
        self, item: RankingInput, outputs: Sequence[Outputs]
    ) -> npt.NDArray[np.floating[Any]]:
        """Return the scores of each text. Shape: (texts, labels)."""
        logits = np.stack([each["logits"] for each in outputs])
        return logits if item.parameters.raw_scores else self._activation(logits)

    def _ranking(self, inputs: Any, parameters: PairParameters) -> RankingInput:
        check_object(inputs, FORMS, *(("query", name) for name in LISTS))
        name = next(name for name in LISTS if name in inputs)
        if self.labels:
            raise Unprocessable(
                f"This model has {len(self.labels)} labels, which give texts no order; send pairs"
                ' {"text": …, "text_pair": …}.'
            )
        query, prompt = self._checked(inputs["query"], "query"), self._prompt(parameters)
        self.check_whole_side(f"{prompt or ''}{query}")
        limits = self.settings.max_rows, self.max_characters
        texts = read_texts(inputs[name], name, *limits)
        return RankingInput(query, texts, parameters, is_pair=False, prompt=prompt)

    @property
    def template(self) -> RankingTemplate | None:
        """How a pair is written; None where its texts are two inputs of the tokenizer."""
        return self.files.template

    def _prompt(self, parameters: PairParameters) -> str | None:
        """Return the instruction, or the prompt of a name.

        Raises:
            BadRequest: there is no prompt of that name.
            Unprocessable: the model has no place for an instruction.
        """
        instruction, name = parameters.instruction, parameters.prompt_name
        if instruction is not None:
            if self.template is None or self.template.instructed is None:
                raise Unprocessable(
                    "parameters: instruction is not supported by this model, which has no place for"
                    " one; leave it out."
                )
            return self._checked(instruction, "parameters: instruction")
        return self.files.prompts.choose(None, name, None) or None

    def _written_rows(
        self,
        item: RankingInput,
        template: RankingTemplate,
        written: Sequence[WrittenPair],
        encoding: BatchEncoding,
        start: int,
    ) -> list[Window]:
        names, limit = self.tokenizer.model_input_names, self.length_limit(item)
        lengths = [len(encoding.encodings[start + number]) for number in range(len(written))]
        if limit is None or max(lengths) <= limit:
            places = enumerate(written, start)
            return [written_row(encoding, number, each, names) for number, each in places]
        if not self.truncates(item):
            for number, length in enumerate(lengths):
                check_length(length, self.max_tokens, self.name_of(item, number))
        behind = tokens_behind(self.tokenizer, template.frame(item.prompt), item.prompt or "")
        before = tokens_before(encoding.encodings[start], written[0])
        if before + len(behind) >= limit:
            raise TextTooLong(self.lack_of_room(before + len(behind), limit))
        return [
            written_row(encoding, number, each, names, limit, behind)
            for number, each in enumerate(written, start)
        ]

    def _checked(self, text: Any, name: str) -> str:
        return check_text(text, name, self.max_characters)

    def _pair_result(self, scores: npt.NDArray[Any]) -> PairScore | PairScores:
        if not self.labels:
            return {"score": float(scores[0])}
        pairs = zip(self.labels, scores.tolist(), strict=True)
        return {"scores": [{"label": label, "score": score} for label, score in pairs]}


class PooledTask(Task):
    """Ranking by a model without a head, which has pooling and dense layers behind it."""

    auto_class = "AutoModel"

    @classmethod
    def auto_class_for(cls, config: PreTrainedConfig) -> str:
        return base_class_for(config)


@dataclass(frozen=True)
class _Group:
    """The rows of a batch that are written for one query, by their numbers.

    Attributes:
        shared: the tokens that all of them begin with, template and instruction among them.
    """

    numbers: Sequence[int]
    rows: Sequence[Window]
    shared: int

    @property
    def is_faster(self) -> bool:
        """Whether to compute the shared tokens once, which runs rows that are not packed."""
        saved, total = self.shared * (len(self.rows) - 1), sum(map(len, self.rows))
        return self.shared >= MIN_SHARED and saved >= total * MIN_SAVED


def _by_query(rows: Sequence[Window]) -> list[_Group]:
    """Return the groups of rows; rows that warm a model up have no query."""
    groups = defaultdict[str, list[int]](list)
    for number, row in enumerate(rows):
        encoding: Any = getattr(row, "encoding", None)
        if isinstance(encoding, PairEncoding):
            groups[encoding.written.text[: encoding.written.document[0]]].append(number)
    found = [(numbers, [rows[number] for number in numbers]) for numbers in groups.values()]
    return [_Group(numbers, own, shared_tokens(own)) for numbers, own in found]


class CausalTask(Task):
    """Ranking by the logits that a causal model has behind a pair."""

    auto_class = "AutoModelForCausalLM"


def _labels(checkpoint: Checkpoint, count: int) -> Sequence[str]:
    """Return the names of several scores of a pair; none for a single one."""
    if count <= 1:
        return ()
    if count == checkpoint.config.num_labels:
        return checkpoint.labels
    return [f"LABEL_{number}" for number in range(count)]


def read_activation(files: CrossEncoder) -> Activation:
    """Return the function that turns the logits of a row into scores.

    Raises:
        WrongCheckpoint: the checkpoint names a function that is not known.
    """
    name = files.activation
    if name is None:
        return sigmoid if files.num_labels == 1 else np.asarray
    path = ACTIVATION_PATH.fullmatch(name) if isinstance(name, str) else None
    if path is None or path["name"] not in ACTIVATIONS:
        raise WrongCheckpoint(
            "config.json",
            f"has the activation {quote(name)}",
            f"use one of {enumerate_names(ACTIVATIONS)} of torch.nn",
        )
    return ACTIVATIONS[path["name"]]


def read_texts(texts: Any, name: str, max_rows: int, max_characters: int) -> list[str]:
    """Return the texts to rank, each a text or an object with one.

    Raises:
        BadRequest: it is no list of texts.
        RequestTooLarge: there are too many, or one is too long.
    """
    listed = check_list([texts] if isinstance(texts, str) else texts, name, max_rows)
    return [
        check_text(_text_of(text), f"{name}[{number}]", max_characters)
        for number, text in enumerate(listed)
    ]


def ranked(
    scores: Sequence[float], texts: Sequence[str], parameters: RankingParameters
) -> list[RankedText]:
    """Return the best texts, best first; of equal scores, the first text."""
    best = np.argsort(-np.asarray(scores), kind="stable")[: parameters.top_n].tolist()
    found = [RankedText(index=number, score=scores[number]) for number in best]
    if parameters.return_documents:
        for each in found:
            each["text"] = texts[each["index"]]
    return found


def _text_of(item: Any) -> Any:
    """Return the text of `{"text": …}`; other items as they are."""
    return item["text"] if isinstance(item, dict) and item.keys() == {"text"} else item
