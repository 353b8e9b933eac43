"""A checkpoint as one function of tensors, the shape in which every exported format takes it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from transformers import PreTrainedModel

from handlers.batching import Batch, Forward
from handlers.errors import WrongCheckpoint
from handlers.positions import first_position

FILE = "export.json"
SHAPES = ((2, 16), (3, 29), (1, 7))


@dataclass(frozen=True)
class Signature:
    """Names of an exported model's inputs and outputs, in the order in which it takes them."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

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


class Graph(torch.nn.Module):
    """A model that takes its inputs by position and gives a tuple.

    It makes the four-dimensional mask itself, (rows, 1, width, width): what transformers does to
    make it cannot be traced.
    """

    def __init__(self, module: PreTrainedModel, signature: Signature) -> None:
        super().__init__()
        self.module = module
        self.signature = signature

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the outputs in the signature's order."""
        batch = dict(zip(self.signature.inputs, inputs, strict=True))
        mask = batch["attention_mask"]
        rows, width = mask.shape
        batch["attention_mask"] = mask[:, None, None, :].bool().expand(rows, 1, width, width)
        outputs = self.module(**batch)
        return tuple(outputs[name] for name in self.signature.outputs)


def example(names: Sequence[str], vocabulary: int, rows: int, width: int) -> Batch:
    """Return made-up rows of which the last one is padded by a third."""
    draw = torch.Generator().manual_seed(rows * width)
    batch = {name: torch.zeros(rows, width, dtype=torch.long) for name in names}
    batch["input_ids"] = torch.randint(
        vocabulary // 2, vocabulary, (rows, width), generator=draw, dtype=torch.long
    )
    batch["attention_mask"] = torch.ones(rows, width, dtype=torch.long)
    batch["attention_mask"][-1, width - width // 3 :] = 0
    return {name: batch[name] for name in names}


def trials(module: PreTrainedModel, names: Sequence[str]) -> list[Batch]:
    """Return made-up batches of several shapes that an export is compared on."""
    config = module.config.get_text_config()
    first = first_position(module.config)
    longest = int(getattr(config, "max_position_embeddings", None) or 10**6) - first
    return [
        example(names, int(config.vocab_size), rows, min(width, longest)) for rows, width in SHAPES
    ]


@contextmanager
def exporting(module: PreTrainedModel) -> Iterator[None]:
    """Say in one sentence that a model cannot be exported, whatever the exporter raises.

    Raises:
        WrongCheckpoint: the block failed.
    """
    try:
        with torch.no_grad():
            yield
    except Exception as error:  # noqa: BLE001 - each exporter raises errors of its own
        reason = " ".join(str(error).split())[:200]
        raise WrongCheckpoint(
            type(module).__name__, f"cannot be exported ({reason})", "use save_mode: pretrained"
        ) from None


@torch.no_grad()
def check_equal(
    module: PreTrainedModel,
    forward: Forward,
    batches: Sequence[Batch],
    what: str,
    tolerance: float = 1e-3,
) -> None:
    """Compare an exported model's outputs with the checkpoint's own.

    The tolerance is a share of the largest number, or of 1 where all are smaller.

    Raises:
        WrongCheckpoint: when they differ by more than rounding.
    """
    for batch in batches:
        wanted = module(**batch)
        for name, exported in forward(batch).items():
            tensor = wanted[name].float()
            worst = float((tensor - exported.float()).abs().max())
            # The other way round, not-a-number would pass.
            if not worst <= tolerance * max(1.0, float(tensor.abs().max())):
                raise WrongCheckpoint(
                    what,
                    f"its {name} differ from the checkpoint's by {worst:.2g}",
                    "use save_mode: pretrained",
                )
