"""The manifest of an exported model: `export.json` beside its graph."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from ..batching.sequence_packing import SEGMENTS, pack_padded
from ..config.documents import read_json
from ..errors import WrongCheckpoint

FILE = "export.json"
# Versions before 0.2 wrote these files instead of keys of export.json.
LEGACY_FILES = {"dtype": "dtype.json", "shape": "shape.json"}


@dataclass(frozen=True)
class Signature:
    """Names of the inputs and outputs of an exported model, in positional order."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def is_packed(self) -> bool:
        """Whether the model takes packed rows."""
        return SEGMENTS in self.inputs

    def by_position(self, batch: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Return the tensors of a padded batch in positional order."""
        tensors = pack_padded(batch).inputs if self.is_packed else batch
        return tuple(tensors[name] for name in self.inputs)


@dataclass(frozen=True)
class Shape:
    """The fixed shape of a compiled graph.

    Attributes:
        per_token: names of the outputs that have a value for each token.
    """

    rows: int
    width: int
    per_token: tuple[str, ...]


@dataclass(frozen=True)
class ExportManifest:
    """The description of an exported graph.

    Attributes:
        dtype: the dtype that it computes in; None if that is set when it is loaded.
        shape: the shape that it was compiled for; None if it takes any shape.
    """

    signature: Signature
    dtype: str | None = None
    shape: Shape | None = None

    def write(self, folder: Path) -> None:
        """Write the manifest to a directory."""
        document = {
            **asdict(self.signature),
            **({"dtype": self.dtype} if self.dtype else {}),
            **({"shape": asdict(self.shape)} if self.shape else {}),
        }
        (folder / FILE).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path, outputs: Sequence[str]) -> ExportManifest:
        """Read the manifest in a directory.

        A graph without a manifest comes from TorchServe's example: its inputs are token ids and
        attention mask, its outputs the outputs of the task.

        Raises:
            WrongCheckpoint: the graph lacks one of the outputs.
        """
        document = _documents(folder)
        if "inputs" not in document:
            signature = Signature(("input_ids", "attention_mask"), tuple(outputs))
        else:
            signature = Signature(tuple(document["inputs"]), tuple(document["outputs"]))
        if missing := set(outputs) - set(signature.outputs):
            raise WrongCheckpoint(
                FILE,
                f"the exported model has {', '.join(signature.outputs)}, not {missing.pop()}",
                "export it again with this YAML's mode",
            )
        return cls(signature, document.get("dtype"), _shape(document.get("shape")))


def _documents(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = {}
    if (path := folder / LEGACY_FILES["shape"]).is_file():
        document["shape"] = read_json(path)
    for path in (folder / LEGACY_FILES["dtype"], folder / FILE):
        if path.is_file():
            document |= read_json(path)
    return document


def _shape(document: Mapping[str, Any] | None) -> Shape | None:
    if document is None:
        return None
    return Shape(document["rows"], document["width"], tuple(document["per_token"]))
