"""Made-up batches: what an exporter traces, and what its result is compared on."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from handlers.batching import Batch, Padding
from handlers.errors import WrongCheckpoint
from handlers.formats.base import Model
from handlers.graph import AnyGraph
from handlers.packable import example_texts
from handlers.packing import bins, lay
from handlers.positions import first_position
from handlers.rows import Row

SHAPES = ((2, 16), (3, 29), (1, 7))


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


def example_inputs(graph: AnyGraph, batches: Sequence[Batch]) -> tuple[torch.Tensor, ...]:
    """Return inputs by position with which a graph can be traced."""
    if not graph.signature.packs:
        return graph.signature.by_position(batches[0])
    names = [name for name in batches[0] if name != "attention_mask"]
    texts = example_texts(int(graph.module.config.get_text_config().vocab_size))
    rows = [Row({**{name: [0] * len(text) for name in names}, **text.features}) for text in texts]
    packed = lay(rows, bins([len(row) for row in rows], max(map(len, rows))), Padding({}))
    return tuple(packed.inputs[name] for name in graph.signature.inputs)


@torch.no_grad()
def check_equal(
    module: PreTrainedModel,
    model: Model,
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
        wanted, real = module(**batch), batch["attention_mask"].bool()
        for name, exported in model.forward(batch).items():
            tensor, found = (_real(each.float(), real) for each in (wanted[name], exported))
            worst = float((tensor - found).abs().max())
            # The other way round, not-a-number would pass.
            if not worst <= tolerance * max(1.0, float(tensor.abs().max())):
                raise WrongCheckpoint(
                    what,
                    f"its {name} differ from the checkpoint's by {worst:.2g}",
                    "use save_mode: pretrained",
                )


def _real(values: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
    """Return what an output has for real tokens: what stands for padding is nobody's."""
    return values[real] if values.shape[:2] == real.shape else values
