"""Made-up batches: what an exporter traces, and what its result is compared on."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from handlers.batching.padding import Batch
from handlers.checkpoints.checkpoint import first_position
from handlers.errors import WrongCheckpoint
from handlers.runtime.model import Model

SHAPES = ((2, 16), (3, 29), (1, 7))


def example_batch(names: Sequence[str], vocabulary: int, rows: int, width: int) -> Batch:
    """Return made-up rows of which the last one is padded by a third."""
    draw = torch.Generator().manual_seed(rows * width)
    batch = {name: torch.zeros(rows, width, dtype=torch.long) for name in names}
    batch["input_ids"] = torch.randint(
        vocabulary // 2, vocabulary, (rows, width), generator=draw, dtype=torch.long
    )
    batch["attention_mask"] = torch.ones(rows, width, dtype=torch.long)
    batch["attention_mask"][-1, width - width // 3 :] = 0
    return {name: batch[name] for name in names}


def parity_batches(module: PreTrainedModel, names: Sequence[str]) -> list[Batch]:
    """Return made-up batches of several shapes that an export is compared on."""
    config = module.config.get_text_config()
    first = first_position(module.config)
    longest = int(getattr(config, "max_position_embeddings", None) or 10**6) - first
    return [
        example_batch(names, int(config.vocab_size), rows, min(width, longest))
        for rows, width in SHAPES
    ]


@torch.no_grad()
def check_parity(
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
        expected, real = module(**batch), batch["attention_mask"].bool()
        for name, exported in model.forward(batch).items():
            tensor, found = (_real(each.float(), real) for each in (expected[name], exported))
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
