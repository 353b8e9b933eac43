"""ColBERT: a text to a vector for each token; or a query and texts, ranked by these vectors.

{"inputs": "Who sings?", "parameters": {"prompt_name": "query"}} -> [[0.02, -0.11, …], …]
{"inputs": {"query": "Who sings?", "texts": ["It rains.", "Nina sings."]}}
-> [{"index": 1, "score": 29.8}, {"index": 0, "score": 21.3}]

The score of a text is MaxSim: the sum, over the vectors of the query, of the largest product with a
vector of the text. Vectors and scores are computed as by PyLate; see
`handlers/checkpoints/colbert.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from transformers import PreTrainedConfig

from ..batching.rows import Outputs, Row
from ..batching.tokenization import check_length, features, lowest_limit, tokenize
from ..checkpoints.architecture import FAMILIES_OF_PAGES, base_class_for
from ..checkpoints.checkpoint import Checkpoint
from ..checkpoints.colbert import OUTPUT, Colbert
from ..checkpoints.pooling import PoolingHead
from ..checkpoints.sentence_transformers import SETTINGS
from ..checkpoints.tokenizer_kernel import read_in_lower_case
from ..config.handler_section import HandlerSection
from ..config.messages import quote
from ..errors import BadRequest, RequestError, WrongCheckpoint, attempt
from ..types.embeddings import Vectors, as_list, max_similarity
from ..types.model_info import TEXT_COLUMN, ModelOutputs, Rows, TaskDescription, Wire
from ..types.parameters import check_object, check_text, json_type
from ..types.request import Request
from .base import BaseTask
from .bases.pages import PageTask
from .bases.text import TextTask
from .sentence_ranking import LISTS, QueryTexts, RankedText, RankingParameters, ranked, read_texts

Kind = Literal["query", "document"]
FORMS = 'a text, or {"query": …, "texts": […]}'


class LateInteractionParameters(RankingParameters):
    """Parameters of a text, or of a ranking."""

    prompt_name: Kind = "document"
    """How a text is read. A ranking reads its query as one, and the texts as documents."""
    raw_scores: bool = False
    """Has no effect, as scores are MaxSim either way; rerankers take it."""
    truncate: bool | None = None
    """Cuts a text that is too long, instead of refusing it. Without it, `truncation` of the YAML.
    """


@dataclass(frozen=True)
class LateInteractionInput:
    """A text, or a query and the texts to rank behind it.

    Attributes:
        kinds: how each of them is read.
        ranks: whether the result is a ranking.
    """

    texts: Sequence[str]
    kinds: Sequence[Kind]
    parameters: LateInteractionParameters
    ranks: bool


class Task(TextTask[LateInteractionInput, Row]):
    """Vectors of tokens, and rankings by them."""

    auto_class = "AutoModel"
    description = TaskDescription(
        Wire(
            inputs=QueryTexts | str,
            results=list[RankedText] | list[list[float]],
            example={
                "inputs": {"query": "Who sings?", "texts": ["Nina sings in the bar.", "It rains."]}
            },
            input_columns=(TEXT_COLUMN, *(("query", name) for name in LISTS)),
        ),
        outputs=ModelOutputs((OUTPUT,), per_token=(OUTPUT,), are_vectors=True),
        rows=Rows(supports_packing=False),
        service="rerank",
    )
    parameters = LateInteractionParameters

    @classmethod
    def for_config(cls, config: PreTrainedConfig) -> type[BaseTask[Any, Any]]:
        return PageTask if config.model_type in FAMILIES_OF_PAGES else cls

    @classmethod
    def auto_class_for(cls, config: PreTrainedConfig) -> str:
        return base_class_for(config)

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        super().__init__(checkpoint, settings)
        if self._colbert.do_lower_case:
            read_in_lower_case(self.tokenizer)
        tokenization = self._colbert.tokenization
        self._prefixes = {
            "query": self._prefix_ids(tokenization.query_prefix),
            "document": self._prefix_ids(tokenization.document_prefix),
        }
        skipped = map(self._id, tokenization.skiplist_words)
        self._skipped = [number for number in skipped if number is not None]
        self._expansion = self.tokenizer.mask_token_id or self.tokenizer.eos_token_id
        if tokenization.do_query_expansion and self._expansion is None:
            raise WrongCheckpoint(
                SETTINGS,
                "has do_query_expansion, and the tokenizer has no mask token",
                "add the mask token to the tokenizer, or set do_query_expansion to false",
            )

    @property
    def reduction(self) -> Callable[[], PoolingHead]:
        return self._colbert.reduction

    @property
    def max_tokens(self) -> int | None:
        own = self.settings.max_length or self._colbert.tokenization.document_length
        return lowest_limit(own, self.checkpoint.limit)

    def parse(self, request: Request) -> LateInteractionInput:
        parameters: LateInteractionParameters = self.read_parameters(request.parameters)
        inputs = request.inputs
        if isinstance(inputs, dict):
            query, *texts = self._ranking(inputs)
            kinds: list[Kind] = ["document"] * len(texts)
            return LateInteractionInput([query, *texts], ["query", *kinds], parameters, ranks=True)
        if not isinstance(inputs, str):
            raise BadRequest(f"inputs must be {FORMS}, and is {json_type(inputs)}.")
        text = check_text(inputs, "inputs", self.max_characters)
        return LateInteractionInput([text], [parameters.prompt_name], parameters, ranks=False)

    def least_rows(self, item: LateInteractionInput) -> int:
        return len(item.texts)

    def encode(self, inputs: Sequence[LateInteractionInput]) -> list[list[Row] | RequestError]:
        return [attempt(self._rows, item) for item in inputs]

    def result_numbers(self, item: LateInteractionInput, rows: Sequence[Row]) -> int:
        return 0 if len(rows) > 1 else self._colbert.dimension * sum(map(len, rows))

    def decode(
        self, item: LateInteractionInput, rows: Sequence[Row], outputs: Sequence[Outputs]
    ) -> Any:
        found = [self._vectors(*each) for each in zip(item.kinds, rows, outputs, strict=True)]
        if not item.ranks:
            return as_list(found[0])
        scores = [max_similarity(found[0], each) for each in found[1:]]
        return ranked(scores, item.texts[1:], item.parameters)

    @cached_property
    def _colbert(self) -> Colbert:
        hidden_size = self.checkpoint.config.get_text_config().hidden_size
        return Colbert.read(self.checkpoint.directory, int(hidden_size))

    def _ranking(self, inputs: Mapping[str, Any]) -> list[str]:
        """Return the query and the texts."""
        check_object(inputs, FORMS, *(("query", name) for name in LISTS))
        name = next(name for name in LISTS if name in inputs)
        limits = self.settings.max_rows, self.max_characters
        return [
            check_text(inputs["query"], "query", self.max_characters),
            *read_texts(inputs[name], name, *limits),
        ]

    def _rows(self, item: LateInteractionInput) -> list[Row]:
        encoding = tokenize(self.tokenizer, [(text, None) for text in item.texts])
        wanted = item.parameters.truncate
        truncate = self.truncation if wanted is None else wanted
        rows: list[Row] = []
        for number, (text, kind) in enumerate(zip(item.texts, item.kinds, strict=True)):
            prefix, limit = self._prefixes[kind], self._limit(kind)
            room = None if limit is None else limit - len(prefix)
            row = features(encoding, number, self.tokenizer.model_input_names)
            if room is not None and truncate and len(row["input_ids"]) > room:
                cut = tokenize(self.tokenizer, [(text, None)], truncation=True, max_length=room)
                row = features(cut, 0, self.tokenizer.model_input_names)
            check_length(len(row["input_ids"]) + len(prefix), limit, "the text")
            rows.append(self._prefixed(row, prefix, limit if kind == "query" else None))
        return rows

    def _prefixed(self, row: Mapping[str, list[int]], prefix: list[int], length: int | None) -> Row:
        """Return a row with a prefix behind its first token, and a query filled up to its length.

        Args:
            row: the inputs of the text.
            prefix: the token of the prefix, if there is one.
            length: the length of a query; None for a document.
        """
        tokenization = self._colbert.tokenization
        count = len(row["input_ids"]) + len(prefix)
        added = length - count if length is not None and tokenization.do_query_expansion else 0
        values = {"input_ids": (prefix, [self._expansion] * added)}
        others = ([0] * len(prefix), [0] * added)
        inputs = {
            name: [*ids[:1], *before, *ids[1:], *behind]
            for name, ids in row.items()
            for before, behind in [values.get(name, others)]
        }
        attended = int(tokenization.attend_to_expansion_tokens)
        return Row({**inputs, "attention_mask": [1] * count + [attended] * added})

    def _limit(self, kind: Kind) -> int | None:
        length = self._colbert.tokenization.query_length if kind == "query" else None
        return min((each for each in (length, self.max_tokens) if each), default=None)

    def _vectors(self, kind: Kind, row: Row, outputs: Outputs) -> Vectors:
        """Return the vectors of a text without those that are not compared."""
        vectors: Vectors = np.asarray(outputs[OUTPUT], dtype=np.float32)
        if kind == "query" or not self._skipped:
            return vectors
        return vectors[~np.isin(row.features["input_ids"], self._skipped)]

    def _prefix_ids(self, prefix: str) -> list[int]:
        """Return the token of a prefix.

        Raises:
            WrongCheckpoint: it is no token.
        """
        if not prefix:
            return []
        number = self._id(prefix)
        unknown = number == self.tokenizer.unk_token_id and prefix != self.tokenizer.unk_token
        if number is None or unknown:
            raise WrongCheckpoint(
                SETTINGS,
                f"has the prefix {quote(prefix)}, which is no token of the tokenizer",
                "pack the tokenizer that was saved with the model",
            )
        return [number]

    def _id(self, word: str) -> int | None:
        number: int | None = self.tokenizer.convert_tokens_to_ids(word)
        return number
