"""The catalogue: what is known of published checkpoints, by the names that people use for them.

Each file of `catalogue/` is an entry, such as `catalogue/bge.yaml`:

    models: [BAAI/bge-small-en-v1.5, BAAI/bge-base-en-v1.5]
    mode: sentence_embedding
    needs: the vector of the first token, and a prompt for queries
    reference: sentence-transformers
    handler:
      prompts: {query: "Represent this sentence for searching relevant passages: "}
    checkpoint:
      tokenizer: bert
      config: {model_type: bert, architectures: [BertModel], …}
      files: {modules.json: […]}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hf_serve.handlers.config.documents import parse_yaml
from hf_serve.handlers.config.messages import describe_validation_error
from hf_serve.handlers.errors import WrongConfig, summarize
from hf_serve.scripts.paths import CATALOGUE


class PublishedCheckpoint(BaseModel):
    """The files of a published checkpoint that say how it is served.

    A tiny checkpoint with the same files and keys is made from them, so that an entry is proved
    without a model hub.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    config: dict[str, Any]
    """Its config.json."""
    tokenizer: str | None = None
    """The kind of its tokenizer."""
    files: dict[str, Any] = Field(default_factory=dict)
    """Its other JSON files and texts, by their names."""
    hub_task: str | None = None
    """The task that the hub lists it under."""


class CatalogueEntry(BaseModel):
    """A family of published checkpoints."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    models: Annotated[list[str], Field(min_length=1)]
    """Their ids on the hub; the first is the one that the name of the entry stands for."""
    mode: str | None = None
    """The mode that serves them; none for a family that no mode serves."""
    needs: str
    """What they need that others do not, in a few words."""
    reference: str
    """The library that defines their results."""
    handler: dict[str, Any] = Field(default_factory=dict)
    """Keys of the `handler` section that they need."""
    refused: str | None = None
    """Why they are not served, as a sentence."""
    verified: dict[str, str] = Field(default_factory=dict)
    """The files of `checkpoint` that were compared with a public page, and the page of each: of
    one of the models, or of a model that was made from it. The other files are from memory."""
    checkpoint: PublishedCheckpoint


@dataclass(frozen=True)
class CatalogueModel:
    """A model of the catalogue: its id on the hub, and the entry of its family."""

    model: str
    entry: CatalogueEntry


def find_in_catalogue(name: str) -> CatalogueModel | None:
    """Return the model of a name, which is an entry or an id with or without its organization."""
    return _models().get(name.lower())


@cache
def read_catalogue(folder: Path = CATALOGUE) -> Mapping[str, CatalogueEntry]:
    """Return the entries by their names.

    Raises:
        WrongConfig: a file is no entry.
    """
    return {path.stem: _read(path) for path in sorted(folder.glob("*.yaml"))}


def _read(path: Path) -> CatalogueEntry:
    try:
        return CatalogueEntry.model_validate(parse_yaml(path.read_text(encoding="utf-8")))
    except yaml.YAMLError as error:
        raise WrongConfig(
            str(path), f"is not YAML ({summarize(error, 300)})", "correct the YAML syntax"
        ) from None
    except ValidationError as error:
        problem, remedy = describe_validation_error(CatalogueEntry, error)
        raise WrongConfig(str(path), f"has a wrong value: {problem}", remedy) from None


@cache
def _models() -> Mapping[str, CatalogueModel]:
    """Return each model by each of its names; the name of an entry comes before one of a model."""
    return dict(_names())


def _names() -> Iterator[tuple[str, CatalogueModel]]:
    entries = read_catalogue()
    for entry in entries.values():
        for model in entry.models:
            found = CatalogueModel(model, entry)
            yield model.rpartition("/")[2].lower(), found
            yield model.lower(), found
    for name, entry in entries.items():
        yield name.lower(), CatalogueModel(entry.models[0], entry)
