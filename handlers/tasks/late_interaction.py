"""ColBERT: a text to a vector for each token; or a query and texts, ranked by these vectors.

{"inputs": "Who sings?", "parameters": {"prompt_name": "query"}} -> [[0.02, -0.11, …], …]
{"inputs": {"query": "Who sings?", "texts": ["It rains.", "Nina sings."]}}
-> [{"index": 1, "score": 29.8}, {"index": 0, "score": 21.3}]

The score of a text is MaxSim: the sum, over the vectors of the query, of the largest product with a
vector of the text. Vectors and scores are computed as by PyLate; see
`handlers/checkpoints/colbert.py`.

ColPali, ColQwen2 and ColModernVBERT rank pages, which are images of documents, with a query:

{"inputs": "the revenue of 2025"}                -> [[0.02, -0.11, …], …], of a query
{"inputs": {"image": "<base64>"}}                -> [[0.05, 0.01, …], …], of a page
{"inputs": {"query": "the revenue of 2025", "images": ["<base64>", "<base64>"]}}
-> [{"index": 1, "score": 11.8}, {"index": 0, "score": 9.3}]

transformers' processors prepare queries and pages, and score them by `score_retrieval`. Faysse et
al.: ColPali, 2024.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NotRequired

import numpy as np
import torch
from PIL import Image
from transformers import PreTrainedConfig
from typing_extensions import TypedDict

from ..batching.padding import ArrayRow
from ..batching.rows import Outputs, Row
from ..batching.tokenization import check_length, features, lowest_limit, tokenize
from ..checkpoints.architecture import FAMILIES_OF_PAGES, base_class_for
from ..checkpoints.checkpoint import Checkpoint
from ..checkpoints.colbert import OUTPUT, Colbert
from ..checkpoints.pooling import PoolingHead
from ..checkpoints.probe_inputs import ArrayInputs
from ..checkpoints.sentence_transformers import SETTINGS
from ..checkpoints.tokenizer_files import read_in_lower_case
from ..config.handler_section import HandlerSection
from ..config.messages import quote
from ..config.model_config import ModelConfig
from ..errors import (
    BadRequest,
    RequestError,
    TextTooLong,
    Unprocessable,
    WrongCheckpoint,
    attempt,
    summarize,
)
from ..media.files import RemoteFile
from ..media.images import IMAGE, read_image
from ..model import Model
from ..types.embeddings import Vectors, as_list, max_similarity
from ..types.model_info import (
    IMAGE_COLUMN,
    TEXT_COLUMN,
    Exports,
    ModelOutputs,
    Rows,
    TaskDescription,
    Wire,
)
from ..types.parameters import check_list, check_object, check_text, json_type
from ..types.request import Request
from .base import BaseTask
from .bases.image import DEFAULT_BATCH_PIXELS, GREY_IMAGE, PIXELS
from .bases.media import FILE_CHARACTERS, MediaTask
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


PAGE_OUTPUT = "embeddings"
# The keys of the pages of a query.
PAGES = ("images", "documents", "texts")
PAGE_FORMS = 'a text, {"image": …} or {"query": …, "images": […]}'
PATCH = 14
CHANNELS = 3
EXAMPLE_QUERY = "the revenue of a year"


class PageParameters(RankingParameters):
    """Parameters of a query, a page, or a ranking of pages."""

    prompt_name: Literal["query"] = "query"
    """How a text is read."""
    raw_scores: bool = False
    """Has no effect, as scores are MaxSim either way; rerankers take it."""
    truncate: bool | None = None
    """Has no effect: queries are read whole, and pages are scaled."""


class PageImage(TypedDict):
    """The image of a page: base64, a data URI, or the URL of a host that is allowed."""

    image: str


class QueryPages(TypedDict):
    """A query, and the pages to rank; their list is also called `documents`."""

    query: str
    images: NotRequired[list[str | PageImage]]
    documents: NotRequired[list[PageImage]]


@dataclass(frozen=True)
class PageInput:
    """A query, pages, or both.

    Attributes:
        files: the images of the pages.
    """

    query: str | None
    files: Sequence[bytes | RemoteFile]
    parameters: PageParameters


@dataclass(frozen=True)
class PageRow(ArrayRow):
    """The model inputs of a query or a page."""

    @property
    def tokens(self) -> int:
        return len(self.features["input_ids"])


class PageTask(MediaTask[PageRow]):
    """Vectors of queries and pages, and rankings of pages by them."""

    # The auto class that has all of the families.
    auto_class = "AutoModelForPreTraining"
    description = TaskDescription(
        Wire(
            inputs=QueryPages | PageImage | str,
            results=list[RankedText] | list[list[float]],
            example={"inputs": EXAMPLE_QUERY},
            input_columns=(TEXT_COLUMN, IMAGE_COLUMN, *(("query", name) for name in PAGES)),
        ),
        outputs=ModelOutputs((PAGE_OUTPUT,), per_token=(PAGE_OUTPUT,), are_vectors=True),
        rows=Rows(
            kind="arrays",
            supports_packing=False,
            cost_unit="pixels",
            smaller_requests="fewer or smaller pages",
            smaller_results="fewer or smaller pages",
        ),
        exports=Exports(supported=False),
        service="rerank",
    )
    parameters = PageParameters

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        super().__init__(checkpoint, settings, IMAGE, settings.max_image_bytes)
        self._processor: Any = checkpoint.processor
        names = ("image_token", "video_token")
        found = (getattr(self._processor, name, None) for name in names)
        self._media_tokens = [str(each) for each in found if each]
        config: Any = checkpoint.config
        self._dimension = int(config.embedding_dim)
        text = config.vlm_config.get_text_config()
        self._max_tokens = int(getattr(text, "max_position_embeddings", 0)) or None

    @property
    def budget(self) -> int:
        return self.settings.max_batch_pixels or DEFAULT_BATCH_PIXELS

    @property
    def graph_inputs(self) -> ArrayInputs:
        return ArrayInputs(self._page(GREY_IMAGE).features)

    def parse(self, request: Request) -> Any:
        parameters: PageParameters = self.read_parameters(request.parameters)
        if parameters.return_documents:
            raise Unprocessable("return_documents cannot be done with pages; leave it out.")
        inputs = request.inputs
        if isinstance(inputs, Mapping) and "query" in inputs:
            return PageInput(self._query(inputs["query"], "query"), self._files(inputs), parameters)
        if isinstance(inputs, Mapping) and inputs.keys() == {"text"}:
            inputs = inputs["text"]
        if isinstance(inputs, str):
            return PageInput(self._query(inputs, "inputs"), (), parameters)
        if isinstance(inputs, (bytes, bytearray)) or _is_image(inputs):
            return PageInput(None, [self.files.file(inputs, "inputs")], parameters)
        raise BadRequest(f"inputs must be {PAGE_FORMS}, and is {json_type(inputs)}.")

    def encoding_cost(self, item: Any) -> int:
        return FILE_CHARACTERS * len(item.files)

    def least_rows(self, item: Any) -> int:
        return len(item.files) + (item.query is not None)

    def read(self, item: Any, file: bytes) -> list[PageRow]:
        return [self._page(read_image(file, "The page", self.settings.max_image_pixels))]

    def encode(self, inputs: Sequence[Any]) -> list[list[PageRow] | RequestError]:
        """Return the rows of each input, a query before its pages."""
        return self._reader.read(self._rows, inputs, [item.files for item in inputs])

    def warmup_batches(self, config: ModelConfig, model: Model) -> list[list[Any]]:
        """Return a query, and batches of grey pages."""
        page = self._page(GREY_IMAGE)
        most = max(1, self.budget // page.cost)
        counts = dict.fromkeys((min(most, max(2, config.batchSize)), 1))
        return [[self._query_row(EXAMPLE_QUERY)], *([page] * count for count in counts)]

    def result_numbers(self, item: Any, rows: Sequence[PageRow]) -> int:
        return 0 if len(rows) > 1 else self._dimension * sum(row.tokens for row in rows)

    def decode(self, item: Any, rows: Sequence[PageRow], outputs: Sequence[Outputs]) -> Any:
        first, *pages = (np.asarray(each[PAGE_OUTPUT], dtype=np.float32) for each in outputs)
        if item.query is None or not item.files:
            return as_list(first)
        return ranked([max_similarity(first, page) for page in pages], (), item.parameters)

    def _rows(self, item: PageInput, files: Sequence[bytes]) -> list[PageRow]:
        query = [] if item.query is None else [self._query_row(item.query)]
        return [*query, *(row for file in files for row in self.read(item, file))]

    def _query(self, value: Any, name: str) -> str:
        """Return the text of a query.

        Raises:
            BadRequest: it is no text, or has a token that stands for a file.
            RequestTooLarge: it is too long.
        """
        text = check_text(value, name, self.settings.max_characters)
        token = next((each for each in self._media_tokens if each in text), None)
        if token is not None:
            raise BadRequest(f"{name} has {token}, which stands for an image; leave it out.")
        return text

    def _files(self, inputs: Mapping[str, Any]) -> list[bytes | RemoteFile]:
        """Return the pages of a ranking.

        Raises:
            BadRequest: there are none, or one is no image.
            Unprocessable: one is a text, or texts are to be returned.
        """
        name = next((each for each in PAGES if inputs.keys() == {"query", each}), None)
        if name is None:
            raise BadRequest(
                f"inputs has the keys {quote(sorted(map(str, inputs)))}; send {PAGE_FORMS}."
            )
        pages = check_list(inputs[name], name, self.settings.max_rows, "page")
        if name != "images" and any(not _is_image(page) for page in pages):
            raise Unprocessable(
                f"{name} has a text, and this model compares queries with images of pages; send"
                ' {"image": …}.'
            )
        return [self.files.file(page, f"{name}[{number}]") for number, page in enumerate(pages)]

    def _query_row(self, query: str) -> PageRow:
        found = self._processor.process_queries(text=[query], return_tensors="pt")
        row = self._row(found, 0)
        if self._max_tokens is not None and row.tokens > self._max_tokens:
            raise TextTooLong(
                f"The query has {row.tokens:,} tokens, and this model takes {self._max_tokens:,};"
                " shorten it."
            )
        return row

    def _page(self, image: Image.Image) -> PageRow:
        try:
            found = self._processor.process_images(images=[image], return_tensors="pt")
        except ValueError as error:
            raise Unprocessable(
                f"The page has {image.width:,} x {image.height:,} pixels, which the processor of"
                f" this model does not take ({summarize(error)}); send a larger one."
            ) from None
        return self._row(found, found[PIXELS].numel() // CHANNELS)

    def _row(self, found: Mapping[str, torch.Tensor], pixels: int) -> PageRow:
        """Return a row of the only item of a batch; a token of a query costs a patch."""
        arrays = {name: each[0].numpy() for name, each in found.items() if name != "labels"}
        return PageRow(arrays, pixels or len(arrays["input_ids"]) * PATCH**2)


def _is_image(value: Any) -> bool:
    return isinstance(value, Mapping) and value.keys() in ({"image"}, {"b64"})
