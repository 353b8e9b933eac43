"""Packed rows on transformers modules; whether a module supports them is determined by a trial."""

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
from handlers.batching.rows import Row, require_outputs
from handlers.checkpoints.checkpoint import first_position
from handlers.telemetry.meter import Meter

logger = logging.getLogger(__name__)

Outputs = Mapping[str, torch.Tensor]
PoolingLayer = Callable[[PreTrainedModel], torch.nn.Module]
LENGTHS = (7, 12, 3, 9)


@dataclass(frozen=True)
class Packable:
    """A module that has the same outputs for packed texts as for each text alone.

    Attributes:
        module: the model.
        mask: converts the boolean matrix of tokens that attend to each other, of shape
            (rows, width, width), to the attention mask of the module.
        pooling_layer: for a head that pools the first vector of each text, returns the layer whose
            output is reduced to these vectors; None for other heads.
    """

    module: PreTrainedModel
    mask: Callable[[torch.Tensor], torch.Tensor]
    pooling_layer: PoolingLayer | None

    @property
    def pools(self) -> bool:
        """Whether the head has one output for each text."""
        return self.pooling_layer is not None

    def forward(self, packed: Mapping[str, torch.Tensor]) -> Outputs:
        """Return the outputs for each slot, or for each text if the head pools.

        Args:
            packed: the tensors of :attr:`PackedBatch.inputs`.
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
    lambda same: same[:, None],  # (rows, 1, width, width), the form that attention takes
    lambda same: same.long(),  # (rows, width, width), which some families expand to the former
)


def _layers(module: PreTrainedModel) -> Any:
    base = module.base_model
    return getattr(base, "encoder", None) or base.transformer


# The earliest layer that works saves most: after the last attention, tokens are independent.
POOLING_LAYERS: tuple[PoolingLayer, ...] = (
    lambda module: _layers(module).layer[-1].sa_layer_norm,  # DistilBERT's residual connection
    lambda module: _layers(module).layer[-1].attention,
    _layers,
)


def as_packable(
    module: PreTrainedModel, padding: Padding, names: tuple[str, ...], per_token: tuple[str, ...]
) -> Packable | None:
    """Return an adapter for packed rows, or None if the module does not support them.

    Combinations of mask and pooling layer are tried on random rows, whose outputs must equal those
    of padded rows.

    Args:
        module: the model.
        padding: the padding ids.
        names: names of the outputs that the task reads.
        per_token: those of them that have a value for each token.
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
    packed = run_packed(
        lambda rows: _select(packable.forward(rows.inputs), names), texts, **options
    )
    padded = run(
        lambda batch: _select(_run_padded(packable.module, batch), names), texts, **options
    )
    found, expected = require_outputs(packed), require_outputs(padded)
    tolerance = 1e-3 if packable.module.dtype == torch.float32 else 5e-2
    return all(
        _close([text[name] for text in found], [text[name] for text in expected], tolerance)
        for name in names
    )


def _close(found: Sequence[Any], expected: Sequence[Any], tolerance: float) -> bool:
    """Return whether values differ by no more than `tolerance` times the largest expected value.

    A relative tolerance for each value would be too strict for values near zero.
    """
    actual, reference = (
        np.concatenate([np.ravel(each) for each in values]) for values in (found, expected)
    )
    return bool(np.abs(actual - reference).max() <= tolerance * np.abs(reference).max())


def example_texts(vocabulary: int) -> list[Row]:
    """Return rows of random ids from the upper half of the vocabulary, without special tokens."""
    generator = torch.Generator().manual_seed(0)
    ids = [
        torch.randint(vocabulary // 2, vocabulary, (length,), generator=generator)
        for length in LENGTHS
    ]
    return [Row({"input_ids": each.tolist()}) for each in ids]


def _run_padded(module: PreTrainedModel, batch: Mapping[str, torch.Tensor]) -> Outputs:
    return module(**{name: tensor.to(module.device) for name, tensor in batch.items()})


def _select(outputs: Outputs, names: tuple[str, ...]) -> Outputs:
    return {name: outputs[name] for name in names}


@contextmanager
def _only_first_vectors(layer: torch.nn.Module, starts: Any) -> Iterator[None]:
    """Reduce the output of a layer to the first vector of each text. Shape: (texts, 1, hidden).

    Subsequent layers, pooling and classification, then run once for each text.
    """
    rows, columns = starts

    def gather(_module: Any, _inputs: Any, output: Any) -> Any:
        if torch.is_tensor(output):
            return output[rows, columns][:, None]
        vectors = output[0][rows, columns][:, None]
        return (vectors, *output[1:]) if isinstance(output, tuple) else type(output)(vectors)

    handle = layer.register_forward_hook(gather)
    try:
        yield
    finally:
        handle.remove()
