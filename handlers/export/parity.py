"""Random batches for tracing a model, and for comparing an export with the checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from transformers import PreTrainedModel

from handlers.batching.padding import Batch
from handlers.checkpoints.checkpoint import UNLIMITED, first_position
from handlers.checkpoints.trial_rows import row_beyond, windows
from handlers.errors import ConfigError, WrongCheckpoint, summarize
from handlers.runtime.model import Model

SHAPES = ((2, 16), (3, 29), (1, 7))


def example_batch(names: Sequence[str], vocabulary: int, rows: int, width: int) -> Batch:
    """Return rows of random tokens; a third of the last row is padding.

    Args:
        names: names of the model inputs.
        vocabulary: the size of the vocabulary.
        rows: the number of rows.
        width: the number of tokens per row.
    """
    generator = torch.Generator().manual_seed(rows * width)
    batch = {name: torch.zeros(rows, width, dtype=torch.long) for name in names}
    batch["input_ids"] = torch.randint(
        vocabulary // 2, vocabulary, (rows, width), generator=generator, dtype=torch.long
    )
    batch["attention_mask"] = torch.ones(rows, width, dtype=torch.long)
    batch["attention_mask"][-1, width - width // 3 :] = 0
    return {name: batch[name] for name in names}


def parity_batches(module: PreTrainedModel, names: Sequence[str]) -> list[Batch]:
    """Return random batches of several shapes, one of them wider than the windows of the config."""
    config = module.config.get_text_config()
    offset = first_position(module.config)
    longest = int(getattr(config, "max_position_embeddings", None) or UNLIMITED) - offset
    reached = [width for width in windows(module.config) if width < longest]
    shapes = (*SHAPES, (2, row_beyond(reached))) if reached else SHAPES
    return [
        example_batch(names, int(config.vocab_size), rows, min(width, longest))
        for rows, width in shapes
    ]


@torch.no_grad()
def check_parity(
    module: PreTrainedModel,
    model: Model,
    batches: Sequence[Batch],
    what: str,
    tolerance: float = 1e-3,
) -> None:
    """Check that an exported model has the outputs of its checkpoint.

    Args:
        module: the checkpoint.
        model: the exported model.
        batches: the inputs to compare on.
        what: the file of the exported model, for the error message.
        tolerance: the maximum difference relative to the largest output, or to 1 if that is less.

    Raises:
        WrongCheckpoint: the outputs differ by more than the tolerance, or the exported model does
            not run rows of another length than those that it was traced with.
    """
    for batch in batches:
        expected, real = module(**batch), batch["attention_mask"].bool()
        for name, exported in _run(model, batch, what).items():
            tensor, actual = (_unpadded(each.float(), real) for each in (expected[name], exported))
            difference = float((tensor - actual).abs().max())
            # `difference > ...` would be false for NaN.
            if not difference <= tolerance * max(1.0, float(tensor.abs().max())):
                raise WrongCheckpoint(
                    what,
                    f"its {name} differ from the checkpoint's by {difference:.2g}",
                    "use save_mode: pretrained",
                )


def _run(model: Model, batch: Batch, what: str) -> Mapping[str, torch.Tensor]:
    try:
        return model.forward(batch)
    except ConfigError:
        raise
    except Exception as error:  # noqa: BLE001 - each runtime has its own error types
        rows, width = batch["input_ids"].shape
        raise WrongCheckpoint(
            what,
            f"does not run a batch of {rows} rows and {width} tokens ({summarize(error)})",
            "use save_mode: pretrained",
        ) from None


def _unpadded(values: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
    """Return an output without padding if it has a value for each token."""
    return values[real] if values.shape[:2] == real.shape else values
