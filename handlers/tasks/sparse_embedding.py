"""A text to the weights of the entries of the vocabulary that it is about (SPLADE).

{"inputs": "Ada sings."} -> [{"index": 4879, "value": 2.41, "token": "sing"}, …]

Weights are computed as by sentence-transformers' SparseEncoder.

Some encoders have a table of weights for queries, and a model for documents. Their modules.json has
one module, a `Router`, whose files say what reads queries and documents:

    router_config.json                              the modules of each route, and their classes
    config.json, model.safetensors                  the model of documents
    document_1_SpladePooling/config.json
    query_0_SparseStaticEmbedding/model.safetensors `weight`, a number for each token

The weights of a query are the numbers of its tokens, the inverse frequencies of OpenSearch's
neural sparse models. Source of the formats: sentence-transformers 6.2, `Router` and
`SparseStaticEmbedding`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import AliasChoices, BaseModel, Field, PositiveInt
from safetensors.numpy import load_file
from transformers import PreTrainedTokenizerBase
from typing_extensions import TypedDict

from ..batching.rows import Outputs
from ..batching.tokenization import Window, check_length, lowest_limit, tokenize
from ..checkpoints import prompts
from ..checkpoints.checkpoint import Checkpoint
from ..checkpoints.pooling import PoolingHead
from ..checkpoints.prompts import Prompts
from ..checkpoints.sentence_transformers import (
    CONFIG,
    LOGITS,
    MASKED_TASK,
    MODULES,
    SAFETENSORS,
    SPLADE,
    Limits,
    Settings,
    SpladeConfig,
    SpladePooling,
    TransformerConfig,
    is_router,
    read_model,
)
from ..checkpoints.tokenizer_files import read_in_lower_case
from ..config.handler_section import HandlerSection
from ..config.messages import quote
from ..errors import BadRequest, RequestError, WrongCheckpoint, summarize
from ..types.model_info import ModelOutputs, TaskDescription, Wire
from ..types.parameters import ANY, PipelineNames, check_text
from ..types.request import Request
from .bases.embedding import PromptParameters
from .bases.text import SingleText, SingleTextTask

OUTPUT = SpladePooling.writes


class SparseParameters(PromptParameters):
    """Parameters of a sparse embedding."""

    pipeline_names: ClassVar[PipelineNames] = PipelineNames(
        ignored={"batch_size": ANY, "padding": ANY}
    )

    top_k: PositiveInt | None = Field(
        default=None, validation_alias=AliasChoices("top_k", "max_active_dims")
    )
    """Number of weights, largest first. Without it, as many as the checkpoint says, or all above
    zero. Alias: `max_active_dims`."""


class SparseWeight(TypedDict):
    """An entry of the vocabulary by its number and its text, and its weight."""

    index: int
    value: float
    token: str


class Task(SingleTextTask):
    """Sparse embeddings of a masked language model."""

    auto_class = "AutoModelForMaskedLM"
    description = TaskDescription(
        Wire(
            inputs=str,
            results=list[SparseWeight],
            example={"inputs": "Ada sings in the old bar."},
        ),
        outputs=ModelOutputs((OUTPUT,), are_vectors=True),
        service="embed_sparse",
    )
    # Each token has a score for each word of the vocabulary.
    one_row_batch_tokens = 4096
    parameters = SparseParameters
    takes_prompts = True

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        directory = checkpoint.directory
        self._reading = TransformerConfig.of_texts(directory, MASKED_TASK, LOGITS)
        self._limits, self._settings = Limits.read(directory), Settings.read(directory)
        super().__init__(checkpoint, settings)
        self._prompts = Prompts(
            {**self._settings.prompts, **settings.prompts}, self._settings.default_prompt_name
        )
        self.prompts = sorted(self._prompts.texts)
        if self._limits.do_lower_case:
            read_in_lower_case(self.tokenizer)
        self._router = SparseRouter.find(checkpoint.directory)
        if self._router is None:
            self._config, self._query_weights = SpladeConfig.read(checkpoint.directory), None
        else:
            self._config = self._router.pooling(checkpoint.directory)
            self._query_weights = self._router.query_weights(checkpoint.directory)

    @property
    def reduction(self) -> Callable[[], PoolingHead]:
        return lambda: SpladePooling(self._config)

    @property
    def max_tokens(self) -> int | None:
        own = self._reading.processing_kwargs.text.max_length or self._limits.max_seq_length
        return self.token_limit(own)

    def parse(self, request: Request) -> SingleText:
        parameters: SparseParameters = self.read_parameters(request.parameters)
        self._check_kind(parameters.input_type)
        text = check_text(request.inputs, "inputs", self.max_characters)
        prompt = self._prompts.choose(
            parameters.prompt, parameters.prompt_name, parameters.input_type
        )
        if prompt:
            text = check_text(prompt + text, "prompt and inputs", self.max_characters)
        return SingleText(text, parameters)

    def is_query(self, parameters: SparseParameters) -> bool:
        """Return whether a text has the weights of a table, and the model does not read it."""
        if self._router is None:
            return False
        kind = parameters.input_type
        return KINDS[kind] == QUERY if kind else self._router.default_kind == QUERY

    def _check_kind(self, kind: str | None) -> None:
        """Refuse a kind of texts that the router of the checkpoint has no route for.

        Raises:
            BadRequest: it has none.
        """
        if self._router is not None and kind and kind not in KINDS:
            raise BadRequest(
                f"parameters: input_type is {quote(kind)}, and this model has routes for queries"
                " and documents alone; send one of query and document."
            )

    def encode(self, inputs: Sequence[SingleText]) -> list[list[Window] | RequestError]:
        read = [item for item in inputs if not self.is_query(item.parameters)]
        rows = iter(super().encode(read))
        return [[] if self.is_query(item.parameters) else next(rows) for item in inputs]

    def decode(
        self, item: SingleText, rows: Sequence[Window], outputs: Sequence[Outputs]
    ) -> list[SparseWeight]:
        weights = outputs[0][OUTPUT] if rows else self._weights_of_query(item)
        most = item.parameters.top_k or self._settings.max_active_dims
        return sparse_weights(weights, self.tokenizer, most)

    def _weights_of_query(self, item: SingleText) -> Any:
        """Return the weight of each entry of the vocabulary: of the tokens of a query, or 0.

        Raises:
            TextTooLong: the query is too long, and is not cut.
        """
        if self._query_weights is None:
            raise ValueError("this model has no weights of queries")
        encoding = tokenize(self.tokenizer, [(item.text, None)], add_special_tokens=False)
        ids = encoding["input_ids"][0]
        # The limit of the modules is for documents.
        most = self.token_limit(None)
        limit = lowest_limit(most, item.parameters.max_length)
        cuts = self.truncation if item.parameters.truncate is None else item.parameters.truncate
        if not cuts:
            check_length(len(ids), most, "the text")
        if limit is not None and len(ids) > limit:
            from_left = item.parameters.truncation_direction == "left"
            ids = ids[-limit:] if from_left else ids[:limit]
        weights = np.zeros_like(self._query_weights)
        weights[ids] = self._query_weights[ids]
        return weights

    def token(self, index: int) -> str:
        """Return an entry of the vocabulary; empty for one that the tokenizer does not have."""
        return _token(self.tokenizer, index)


def sparse_weights(
    weights: Any, tokenizer: PreTrainedTokenizerBase, top_k: int | None = None
) -> list[SparseWeight]:
    """Return the weights above zero, largest first.

    Args:
        weights: a weight for each entry of the vocabulary.
        top_k: how many at most.
    """
    found = np.flatnonzero(weights > 0)
    best = found[np.argsort(-weights[found], kind="stable")][:top_k].tolist()
    return [
        {"index": index, "value": float(weights[index]), "token": _token(tokenizer, index)}
        for index in best
    ]


def _token(tokenizer: PreTrainedTokenizerBase, index: int) -> str:
    return str(tokenizer.convert_ids_to_tokens(index) or "")


ROUTER_FILE = "router_config.json"
QUERY, DOCUMENT = "query", "document"
# The route of each word for a kind of texts.
KINDS: Mapping[str, str] = {
    kind: QUERY if names is prompts.QUERY else DOCUMENT
    for kind, names in prompts.PROMPTS_OF_KINDS.items()
    if names in (prompts.QUERY, prompts.DOCUMENT)
}
STATIC = "SparseStaticEmbedding"
MODELS = ("MLMTransformer", "Transformer")
Numbers = npt.NDArray[np.float32]


class RouterParameters(BaseModel):
    """The route of a text of no kind."""

    default_route: str | None = None


class SparseRouter(BaseModel):
    """router_config.json."""

    types: Mapping[str, str]
    structure: Mapping[str, Sequence[str]]
    parameters: RouterParameters = Field(default_factory=RouterParameters)

    @classmethod
    def find(cls, directory: Path) -> SparseRouter | None:
        """Return the router of a checkpoint; None if it has none.

        Raises:
            WrongCheckpoint: the router is damaged, or has other modules or routes.
        """
        has_modules = (directory / MODULES).is_file()
        return cls.read(directory) if has_modules and is_router(directory) else None

    @classmethod
    def read(cls, directory: Path) -> SparseRouter:
        """Read the router of a checkpoint.

        Raises:
            WrongCheckpoint: it is damaged, or has other modules or routes.
        """
        router = read_model(directory / ROUTER_FILE, cls)
        kinds = {
            route: [router.types.get(name, "").rpartition(".")[2] for name in names]
            for route, names in router.structure.items()
        }
        models = [[model, SPLADE] for model in MODELS]
        if kinds.get(QUERY) != [STATIC] or kinds.get(DOCUMENT) not in models or len(kinds) != 2:
            raise WrongCheckpoint(
                ROUTER_FILE,
                f"has the routes {'; '.join(f'{name}: {each}' for name, each in kinds.items())}",
                f"use a checkpoint of {QUERY}: {STATIC} and {DOCUMENT}: {models[0][0]}, {SPLADE}",
            )
        if router.structure[DOCUMENT][0]:
            raise WrongCheckpoint(
                ROUTER_FILE,
                f"has its model in the folder {router.structure[DOCUMENT][0]:.80}",
                "move the files of that folder to the folder of modules.json, and make its name"
                " empty",
            )
        return router

    @property
    def default_kind(self) -> str:
        """The kind of a text that says nothing else; documents as in sentence-transformers."""
        return self.parameters.default_route or DOCUMENT

    def pooling(self, directory: Path) -> SpladeConfig:
        """Return the config of the pooling of documents.

        Raises:
            WrongCheckpoint: it is missing or damaged.
        """
        return read_model(directory / self.structure[DOCUMENT][1] / CONFIG, SpladeConfig)

    def query_weights(self, directory: Path) -> Numbers:
        """Return the weight of each token in a query.

        Raises:
            WrongCheckpoint: the weights are missing or damaged.
        """
        path = directory / self.structure[QUERY][0] / SAFETENSORS
        try:
            weight: Any = load_file(path)["weight"]
            return np.asarray(weight, dtype=np.float32).reshape(-1)
        except Exception as error:  # noqa: BLE001 - safetensors has its own error types
            raise WrongCheckpoint(
                f"{path.parent.name}/{SAFETENSORS}",
                f"cannot be read ({summarize(error)})",
                "pack the file as sentence-transformers has saved it",
            ) from None
