"""Sparse encoders whose queries have a table of weights, and whose documents have a model.

modules.json has one module, a `Router`, whose files say what reads queries and documents:

    router_config.json                              the modules of each route, and their classes
    config.json, model.safetensors                  the model of documents
    document_1_SpladePooling/config.json
    query_0_SparseStaticEmbedding/model.safetensors `weight`, a number for each token

The weights of a query are the numbers of its tokens, the inverse frequencies of OpenSearch's
neural sparse models. Source of the formats: sentence-transformers 6.2, `Router` and
`SparseStaticEmbedding`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field
from safetensors.numpy import load_file

from ..errors import WrongCheckpoint, summarize
from . import prompts
from .sentence_transformers import (
    CONFIG,
    MODULES,
    SAFETENSORS,
    SPLADE,
    SpladeConfig,
    is_router,
    read_model,
)

FILE = "router_config.json"
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


class Parameters(BaseModel):
    """The route of a text of no kind."""

    default_route: str | None = None


class SparseRouter(BaseModel):
    """router_config.json."""

    types: Mapping[str, str]
    structure: Mapping[str, Sequence[str]]
    parameters: Parameters = Field(default_factory=Parameters)

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
        router = read_model(directory / FILE, cls)
        kinds = {
            route: [router.types.get(name, "").rpartition(".")[2] for name in names]
            for route, names in router.structure.items()
        }
        models = [[model, SPLADE] for model in MODELS]
        if kinds.get(QUERY) != [STATIC] or kinds.get(DOCUMENT) not in models or len(kinds) != 2:
            raise WrongCheckpoint(
                FILE,
                f"has the routes {'; '.join(f'{name}: {each}' for name, each in kinds.items())}",
                f"use a checkpoint of {QUERY}: {STATIC} and {DOCUMENT}: {models[0][0]}, {SPLADE}",
            )
        if router.structure[DOCUMENT][0]:
            raise WrongCheckpoint(
                FILE,
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
