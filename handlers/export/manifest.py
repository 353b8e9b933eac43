"""What an exported model takes and gives, in which order."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from handlers.batching.packing import SEGMENTS, pack_padded
from handlers.errors import WrongCheckpoint

FILE = "export.json"


@dataclass(frozen=True)
class Signature:
    """Names of an exported model's inputs and outputs, in the order in which it takes them."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    @property
    def packs(self) -> bool:
        """Whether rows are packed."""
        return SEGMENTS in self.inputs

    def by_position(self, batch: Mapping[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Return a padded batch's tensors in the order of the inputs."""
        given = pack_padded(batch).inputs if self.packs else batch
        return tuple(given[name] for name in self.inputs)

    def write(self, folder: Path) -> None:
        """Lay the names beside the exported model."""
        (folder / FILE).write_text(json.dumps(asdict(self), indent=2) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, folder: Path, outputs: Sequence[str]) -> Signature:
        """Read the names; without a file, those of the old example: ids and mask, outputs in order.

        Raises:
            WrongCheckpoint: when the file names other outputs than the mode reads.
        """
        path = folder / FILE
        if not path.is_file():
            return cls(("input_ids", "attention_mask"), tuple(outputs))
        names = json.loads(path.read_text(encoding="utf-8"))
        found = cls(tuple(names["inputs"]), tuple(names["outputs"]))
        if missing := set(outputs) - set(found.outputs):
            raise WrongCheckpoint(
                FILE,
                f"the exported model gives {', '.join(found.outputs)}, not {missing.pop()}",
                "export it again with this YAML's mode",
            )
        return found
