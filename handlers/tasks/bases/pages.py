"""Pages: images of documents, found by late interaction with the words of a query.

    {"inputs": "the revenue of 2025"}                -> [[0.02, -0.11, …], …], of a query
    {"inputs": {"image": "<base64>"}}                -> [[0.05, 0.01, …], …], of a page
    {"inputs": {"query": "the revenue of 2025", "images": ["<base64>", "<base64>"]}}
    -> [{"index": 1, "score": 11.8}, {"index": 0, "score": 9.3}]

ColPali, ColQwen2 and ColModernVBERT, as transformers' processors prepare queries and pages and
score them by `score_retrieval`. Faysse et al.: ColPali, 2024.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NotRequired

import numpy as np
import torch
from PIL import Image
from typing_extensions import TypedDict

from ...batching.padding import ArrayRow
from ...batching.rows import Outputs
from ...checkpoints.checkpoint import Checkpoint
from ...checkpoints.graph_inputs import ArrayInputs
from ...config.handler_section import HandlerSection
from ...config.messages import quote
from ...config.model_config import ModelConfig
from ...errors import BadRequest, RequestError, TextTooLong, Unprocessable, summarize
from ...media.files import RemoteFile
from ...media.images import IMAGE, read_image
from ...model import Model
from ...types.embeddings import as_list, max_similarity
from ...types.model_info import (
    IMAGE_COLUMN,
    TEXT_COLUMN,
    Exports,
    ModelOutputs,
    Rows,
    TaskDescription,
    Wire,
)
from ...types.parameters import check_list, check_text, json_type
from ...types.request import Request
from ..sentence_ranking import RankedText, RankingParameters, ranked
from .image import DEFAULT_BATCH_PIXELS, GREY_IMAGE, PIXELS
from .media import FILE_CHARACTERS, MediaTask

OUTPUT = "embeddings"
# The keys of the pages of a query.
PAGES = ("images", "documents", "texts")
FORMS = 'a text, {"image": …} or {"query": …, "images": […]}'
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
        outputs=ModelOutputs((OUTPUT,), per_token=(OUTPUT,), are_vectors=True),
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
        raise BadRequest(f"inputs must be {FORMS}, and is {json_type(inputs)}.")

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
        first, *pages = (np.asarray(each[OUTPUT], dtype=np.float32) for each in outputs)
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
                f"inputs has the keys {quote(sorted(map(str, inputs)))}; send {FORMS}."
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
