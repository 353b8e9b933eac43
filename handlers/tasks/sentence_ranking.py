"""A query and texts, to the texts in the order of their relevance; or a pair of texts to a score.

{"inputs": {"query": "Who sings?", "texts": ["It rains.", "Nina sings."]}}
-> [{"index": 1, "score": 0.98}, {"index": 0, "score": 0.01}]
{"inputs": {"text": "Who sings?", "text_pair": "Nina sings."}} -> {"score": 0.98}

A cross-encoder reads the query together with each text: a request is a row for each text. Scores
are computed as by sentence-transformers' CrossEncoder.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NotRequired

import numpy as np
import numpy.typing as npt
from pydantic import AliasChoices, Field, PositiveInt
from transformers import PreTrainedConfig
from typing_extensions import TypedDict

from ..batching.rows import Outputs
from ..batching.tokenization import Window
from ..checkpoints.architecture import is_decoder
from ..checkpoints.checkpoint import Checkpoint
from ..config.handler_section import HandlerSection
from ..config.messages import enumerate_names, quote
from ..errors import Unprocessable, WrongCheckpoint
from ..types.model_info import ModelOutputs, TaskDescription, Wire
from ..types.parameters import ANY, Parameters, PipelineNames, check_list, check_object, check_text
from ..types.request import Request
from .base import BaseTask, Label
from .bases.labels import sigmoid, softmax
from .bases.text_pairs import PairTask

FORMS = '{"query": …, "texts": […]} or {"text": …, "text_pair": …}'
LISTS = ("texts", "documents")
FILE = "config_sentence_transformers.json"
Activation = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]
# Names are looked up here, and never imported.
ACTIVATIONS: Mapping[str, Activation] = {
    "torch.nn.modules.linear.Identity": np.asarray,
    "torch.nn.modules.activation.Sigmoid": sigmoid,
    "torch.nn.modules.activation.Softmax": softmax,
    "torch.nn.modules.activation.Tanh": np.tanh,
}


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


class PairParameters(RankingParameters):
    """Parameters of a ranking; a pair has `raw_scores`, `truncate` and `max_length` only."""

    raw_scores: bool = False
    """Returns logits. `false` applies the activation of the checkpoint."""
    truncate: bool | None = None
    """Whether a text is cut that is too long together with the query. `false` refuses it. Without
    it, the YAML's `truncation`."""
    max_length: PositiveInt | None = None
    """Cuts a text so that it and the query have this number of tokens, where that is less than the
    model takes."""


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
    """A query and its texts; `is_pair` is whether the result is a score and not a ranking."""

    query: str
    texts: Sequence[str]
    parameters: PairParameters
    is_pair: bool


class Task(PairTask[RankingInput]):
    """Ranking of texts by a cross-encoder."""

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
        outputs=ModelOutputs(("logits",)),
        service="rerank",
    )
    parameters = PairParameters

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        super().__init__(checkpoint, settings)
        self._activation = read_activation(checkpoint)
        self.labels = checkpoint.labels if checkpoint.config.num_labels > 1 else ()

    @classmethod
    def for_config(cls, config: PreTrainedConfig) -> type[BaseTask[Any, Any]]:
        """Return this class for a cross-encoder.

        Raises:
            WrongCheckpoint: it is a causal model, which is trained with its own template.
        """
        if is_decoder(config):
            kind = next(iter(config.architectures or ()), config.model_type)
            raise WrongCheckpoint(
                "handler.mode",
                f"is sentence_ranking, and the checkpoint is a {kind}: rerankers made from causal"
                " models read query and text in a template, which this mode does not write",
                "use a cross-encoder, or mode: sequence_classification with texts that have the"
                " template",
            )
        return cls

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
            return RankingInput(text, [text_pair], parameters, is_pair=True)
        return self._ranking(inputs, parameters)

    def pairs(self, item: RankingInput) -> list[tuple[str, str]]:
        return [(item.query, text) for text in item.texts]

    def truncates(self, item: RankingInput) -> bool:
        wanted = item.parameters.truncate
        return self.truncation if wanted is None else wanted

    def length_limit(self, item: RankingInput) -> int | None:
        limits = (self.max_tokens, item.parameters.max_length)
        return min((limit for limit in limits if limit), default=None)

    def name_of(self, item: RankingInput, number: int) -> str:
        return "text_pair" if item.is_pair else f"texts[{number}]"

    def lack_of_room(self, tokens: int, limit: int) -> str:
        return (
            f"the query has {tokens:,} tokens with the special ones, and this model takes {limit:,}"
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
        query = self.check_whole_side(self._checked(inputs["query"], "query"))
        limits = self.settings.max_rows, self.max_characters
        texts = read_texts(inputs[name], name, *limits)
        return RankingInput(query, texts, parameters, is_pair=False)

    def _checked(self, text: Any, name: str) -> str:
        return check_text(text, name, self.max_characters)

    def _pair_result(self, scores: npt.NDArray[Any]) -> PairScore | PairScores:
        if not self.labels:
            return {"score": float(scores[0])}
        pairs = zip(self.labels, scores.tolist(), strict=True)
        return {"scores": [{"label": label, "score": score} for label, score in pairs]}


def read_activation(checkpoint: Checkpoint) -> Activation:
    """Return the function that turns the logits of a row into scores.

    Raises:
        WrongCheckpoint: the checkpoint names a function that is not known.
    """
    name = _declared(checkpoint)
    if name is None:
        return sigmoid if checkpoint.config.num_labels == 1 else np.asarray
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise WrongCheckpoint(
            "config.json",
            f"has the activation {quote(name)}",
            f"use one of {enumerate_names(ACTIVATIONS)}",
        )
    return ACTIVATIONS[name]


def _declared(checkpoint: Checkpoint) -> Any:
    config = checkpoint.config
    own = getattr(config, "sentence_transformers", None)
    candidates = (
        _of_file(checkpoint),
        own.get("activation_fn") if isinstance(own, Mapping) else None,
        getattr(config, "sbert_ce_default_activation_function", None),
    )
    return next((name for name in candidates if name is not None), None)


def _of_file(checkpoint: Checkpoint) -> Any:
    path = checkpoint.directory / FILE
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8")).get("activation_fn")
    except (ValueError, AttributeError):
        raise WrongCheckpoint(FILE, "is damaged", "correct the file or remove it") from None


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
