"""The comparison of an export with its checkpoint on random batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from transformers import PreTrainedModel

from handlers.batching.batches import Batch
from handlers.errors import ConfigError, WrongCheckpoint, summarize
from handlers.model import Model


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
            not run batches of another shape than that which it was traced with.
    """
    for batch in batches:
        expected, mask = module(**in_dtype(batch, module.dtype)), batch.get("attention_mask")
        for name, exported in _run(model, batch, what).items():
            tensor, actual = (_unpadded(each.float(), mask) for each in (expected[name], exported))
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
        raise WrongCheckpoint(
            what,
            f"does not run a batch of {_shape(batch)} ({summarize(error)})",
            "use save_mode: pretrained",
        ) from None


def _shape(batch: Batch) -> str:
    first = next(iter(batch.values()))
    if "input_ids" not in batch:
        return f"{len(first)} rows"
    return f"{len(first)} rows and {batch['input_ids'].shape[1]} tokens"


def in_dtype(batch: Batch, dtype: torch.dtype) -> Batch:
    """Return a batch whose floating-point inputs have the dtype of a module."""
    return {
        name: each.to(dtype) if each.is_floating_point() else each for name, each in batch.items()
    }


def _unpadded(values: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """Return an output without padding if it has a value for each token."""
    return values if mask is None or values.shape[:2] != mask.shape else values[mask.bool()]
