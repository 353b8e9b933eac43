"""Which transformers modules can run packed rows, found out by trying, and how each is asked to."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from handlers.batching.packing import COLUMNS, ROWS, SEGMENTS, run_packed
from handlers.batching.padding import Padding, run
from handlers.batching.rows import Row
from handlers.checkpoints.checkpoint import first_position
from handlers.telemetry.meter import Meter

logger = logging.getLogger(__name__)

Outputs = Mapping[str, torch.Tensor]
PoolingLayer = Callable[[PreTrainedModel], torch.nn.Module]
LENGTHS = (7, 12, 3, 9)


@dataclass(frozen=True)
class Packable:
    """A module that gives packed texts what it gives each alone.

    Attributes:
        module: the model.
        mask: turns which tokens see each other, a boolean of shape (rows, width, width), into the
            attention mask that the module understands.
        pooling_layer: for a head that reads each text's first vector, and so gives one output a text: finds
            the part of the model behind which only those are computed on; None for other heads.
    """

    module: PreTrainedModel
    mask: Callable[[torch.Tensor], torch.Tensor]
    pooling_layer: PoolingLayer | None

    @property
    def pools(self) -> bool:
        """Whether there is one output a text."""
        return self.pooling_layer is not None

    def forward(self, packed: Mapping[str, torch.Tensor]) -> Outputs:
        """Return the outputs for each slot, or for each text where the head pools.

        Args:
            packed: what :attr:`PackedBatch.inputs` has.
        """
        inputs = {name: tensor.to(self.module.device) for name, tensor in packed.items()}
        starts = inputs.pop(ROWS, None), inputs.pop(COLUMNS, None)
        segments = inputs.pop(SEGMENTS)
        inputs["position_ids"] = inputs["position_ids"] + first_position(self.module.config)
        inputs["attention_mask"] = self.mask(segments[:, :, None] == segments[:, None, :])
        if self.pooling_layer is None:
            return self._call(inputs)
        with _only_first_vectors(self.pooling_layer(self.module), starts):
            return self._call(inputs)

    def _call(self, inputs: Mapping[str, torch.Tensor]) -> Outputs:
        outputs: Outputs = self.module(**inputs)
        return outputs


MASKS: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (
    lambda same: same[:, None],  # (rows, 1, width, width), boolean: what attention itself takes
    lambda same: same.long(),  # (rows, width, width): families that make the former from it
)


def _layers(module: PreTrainedModel) -> Any:
    base = module.base_model
    return getattr(base, "encoder", None) or base.transformer


# The earlier, the less is computed: behind the last attention no token needs any other.
POOLING_LAYERS: tuple[PoolingLayer, ...] = (
    lambda module: _layers(module).layer[-1].sa_layer_norm,  # DistilBERT adds what went in
    lambda module: _layers(module).layer[-1].attention,
    _layers,
)


def as_packable(
    module: PreTrainedModel, padding: Padding, names: tuple[str, ...], per_token: tuple[str, ...]
) -> Packable | None:
    """Return how a module runs packed rows, or None where that fails or gives other answers.

    Each way is tried on a few made-up rows, against running them padded.
    """
    for mask, pooling_layer in product(MASKS, (None,) if per_token else POOLING_LAYERS):
        packable = Packable(module, mask, pooling_layer)
        try:
            if _agrees(packable, padding, names, per_token):
                return packable
        except (TypeError, ValueError, RuntimeError, AttributeError, IndexError):
            continue
    logger.info("%s cannot run packed rows; rows are sorted by length", type(module).__name__)
    return None


@torch.inference_mode()
def _agrees(
    packable: Packable, padding: Padding, names: tuple[str, ...], per_token: tuple[str, ...]
) -> bool:
    texts = example_texts(int(packable.module.config.get_text_config().vocab_size))
    options: dict[str, Any] = {
        "padding": padding,
        "budget": 1024,
        "per_token": per_token,
        "meter": Meter(),
    }
    packed = run_packed(lambda rows: _named(packable.forward(rows.inputs), names), texts, **options)
    padded = run(lambda batch: _named(_padded(packable.module, batch), names), texts, **options)
    tolerance = 1e-3 if packable.module.dtype == torch.float32 else 5e-2
    return all(
        _alike([text[name] for text in packed], [text[name] for text in padded], tolerance)
        for name in names
    )


def _alike(found: Sequence[Any], expected: Sequence[Any], tolerance: float) -> bool:
    """Tell whether numbers differ by no more than a share of the largest of them.

    A number near zero is as inexact as those that it was added up from.
    """
    one, other = (np.concatenate([np.ravel(each) for each in side]) for side in (found, expected))
    return bool(np.abs(one - other).max() <= tolerance * np.abs(other).max())


def example_texts(vocabulary: int) -> list[Row]:
    """Return rows of ids from the vocabulary's upper half, where no special token is."""
    draw = torch.Generator().manual_seed(0)
    ids = [torch.randint(vocabulary // 2, vocabulary, (size,), generator=draw) for size in LENGTHS]
    return [Row({"input_ids": each.tolist()}) for each in ids]


def _padded(module: PreTrainedModel, batch: Mapping[str, torch.Tensor]) -> Outputs:
    return module(**{name: tensor.to(module.device) for name, tensor in batch.items()})


def _named(outputs: Outputs, names: tuple[str, ...]) -> Outputs:
    return {name: outputs[name] for name in names}


@contextmanager
def _only_first_vectors(part: torch.nn.Module, starts: Any) -> Iterator[None]:
    """Let a part of a model give each text's first vector, as if it were a row: (texts, 1, hidden).

    What the model does behind it, pooling and classifying, then runs for every text.
    """
    rows, columns = starts

    def gather(_module: Any, _inputs: Any, output: Any) -> Any:
        if torch.is_tensor(output):
            return output[rows, columns][:, None]
        vectors = output[0][rows, columns][:, None]
        return (vectors, *output[1:]) if isinstance(output, tuple) else type(output)(vectors)

    handle = part.register_forward_hook(gather)
    try:
        yield
    finally:
        handle.remove()
