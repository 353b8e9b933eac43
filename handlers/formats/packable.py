"""Packed rows on transformers modules; whether a module supports them is determined by a trial."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import isinf
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from ..batching.packing import COLUMNS, ROWS, SEGMENTS, WIDTHS, PackedBatch, pack, unpack
from ..batching.padding import Padding, pad, to_numpy
from ..batching.rows import Outputs as RowOutputs
from ..batching.rows import Row, TrialRows, outputs_agree
from ..checkpoints.checkpoint import first_position
from ..checkpoints.pooling import ModelWithPooling, TextSlots
from ..compat.transformers import reads_last_token

logger = logging.getLogger(__name__)

STATES = "hidden_states"
Outputs = Mapping[str, torch.Tensor]
PoolingLayer = Callable[[PreTrainedModel], torch.nn.Module]
# Converts two matrices of shape (rows, width, width) to the attention mask of a module: the tokens
# of the same text, and how far the first of two is behind the second.
Mask = Callable[[PreTrainedModel, torch.Tensor, torch.Tensor], Any]


@dataclass(frozen=True)
class Packable:
    """A module that has the same outputs for packed texts as for each text alone.

    Attributes:
        mask: makes the attention mask of the module.
        pooling_layer: for a head that pools the first vector of each text, returns the layer whose
            output is reduced to these vectors; None for other heads.
    """

    module: PreTrainedModel
    mask: Mask
    pooling_layer: PoolingLayer | None

    @classmethod
    def of_numbers(cls, module: PreTrainedModel, mask: int, pooling_layer: int | None) -> Packable:
        """Return what a trial has found, from its :attr:`numbers`.

        Raises:
            ValueError: there is no such mask or pooling layer.
        """
        try:
            pooling = None if pooling_layer is None else POOLING_LAYERS[pooling_layer]
            return cls(module, (*MASKS, *DECODER_MASKS)[mask], pooling)
        except IndexError:
            raise ValueError((mask, pooling_layer)) from None

    @property
    def numbers(self) -> tuple[int, int | None]:
        """The numbers of the mask and of the pooling layer, if there is one."""
        layer = self.pooling_layer
        number = (*MASKS, *DECODER_MASKS).index(self.mask)
        return number, None if layer is None else POOLING_LAYERS.index(layer)

    @property
    def pools(self) -> bool:
        """Whether the head has one output for each text."""
        if isinstance(self.module, ModelWithPooling):
            return self.module.reduction.pools
        return self.pooling_layer is not None

    def forward(self, packed: Mapping[str, torch.Tensor]) -> Outputs:
        """Return the outputs for each slot, or for each text if the head pools.

        Args:
            packed: the tensors of :attr:`PackedBatch.inputs`.
        """
        inputs, starts = self._inputs(packed)
        if isinstance(self.module, ModelWithPooling):
            return self._call({**inputs, "slots": TextSlots.of_packed(packed)})
        if self.pooling_layer is None:
            return self._call(inputs)
        with _only_first_vectors(self.pooling_layer(self.module), starts):
            return self._call(inputs)

    def hidden_states(self, packed: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return the last hidden states without the head. Shape: (rows, width, hidden)."""
        inputs, _ = self._inputs(packed)
        if isinstance(self.module, ModelWithPooling):
            inputs = self.module.model_inputs(inputs)
        states: torch.Tensor = self.module.base_model(**inputs)[0]
        return states

    def _inputs(self, packed: Mapping[str, torch.Tensor]) -> tuple[dict[str, Any], Any]:
        inputs = {name: tensor.to(self.module.device) for name, tensor in packed.items()}
        starts = inputs.pop(ROWS, None), inputs.pop(COLUMNS, None)
        segments, positions = inputs.pop(SEGMENTS), inputs["position_ids"]
        inputs["position_ids"] = positions + first_position(self.module.config)
        same = segments[:, :, None] == segments[:, None, :]
        distance = positions[:, :, None] - positions[:, None, :]
        return {**inputs, "attention_mask": self.mask(self.module, same, distance)}, starts

    def _call(self, inputs: Mapping[str, Any]) -> Outputs:
        outputs: Outputs = self.module(**inputs)
        return outputs


def mask_by_layer_type(
    module: PreTrainedModel, same: torch.Tensor, distance: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Return the masks of a module that has local attention in some of its layers.

    Local layers attend to both sides, as far as transformers' `sliding_window`.
    """
    config = module.config.get_text_config()
    if set(config.layer_types) - {"full_attention", "sliding_attention"}:
        raise ValueError(config.layer_types)
    near = distance.abs() <= config.sliding_window
    return {"full_attention": same[:, None], "sliding_attention": (same & near)[:, None]}


def _earlier_by_layer_type(
    module: PreTrainedModel, same: torch.Tensor, distance: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Return the masks of a decoder that has local attention in some of its layers."""
    config = module.config.get_text_config()
    earlier = same & (distance >= 0)
    near = earlier & (distance < config.sliding_window)
    return {"full_attention": earlier[:, None], "sliding_attention": near[:, None]}


def _added_to_scores(same: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    scores = torch.zeros_like(same, dtype=dtype)
    return scores.masked_fill(~same, torch.finfo(dtype).min)


# The first is refused at once by modules without local attention.
MASKS: tuple[Mask, ...] = (
    mask_by_layer_type,
    # (rows, 1, width, width), the form that attention takes
    lambda _module, same, _distance: same[:, None],
    # (rows, width, width), which some families expand to the former
    lambda _module, same, _distance: same.long(),
    # (rows, 1, width, width), which others add to the scores of attention
    lambda module, same, _distance: _added_to_scores(same, module.dtype)[:, None],
)
# Those of decoders, whose tokens attend to earlier ones.
DECODER_MASKS: tuple[Mask, ...] = (
    _earlier_by_layer_type,
    lambda _module, same, distance: (same & (distance >= 0))[:, None],
)


def _layers(module: PreTrainedModel) -> Any:
    base = module.base_model
    return getattr(base, "encoder", None) or base.transformer


# The earliest layer that works saves most: after the last attention, tokens are independent.
POOLING_LAYERS: tuple[PoolingLayer, ...] = (
    lambda module: _layers(module).layer[-1].sa_layer_norm,  # DistilBERT's residual connection
    lambda module: _layers(module).layer[-1].attention,
    lambda module: _layers(module),
    lambda module: module.base_model.layers[-1],
)


def as_packable(
    module: PreTrainedModel,
    trial: TrialRows,
    padding: Padding,
    names: tuple[str, ...],
    per_token: tuple[str, ...],
) -> Packable | None:
    """Return an adapter for packed rows, or None if the module does not support them.

    Masks and pooling layers are tried on rows that must have the outputs that each has alone. A
    mask must also give every token its hidden state, which shows a difference that the few numbers
    of a pooled head may hide.

    Args:
        per_token: names of the outputs that have a value for each token.
    """
    if isinf(trial.limit):
        try:
            if packable := _find(module, _Trials(module, trial, padding, names, per_token)):
                return packable
        except Exception as error:  # noqa: BLE001 - each family has its own
            logger.debug("no packed rows: %s", type(error).__name__)
    logger.info("%s cannot run packed rows; rows are sorted by length", type(module).__name__)
    return None


def _find(module: PreTrainedModel, trials: _Trials) -> Packable | None:
    for mask in (*MASKS, *DECODER_MASKS):
        if not _succeeds(trials.same_states, Packable(module, mask, None)):
            continue
        for pooling_layer in _pooling_layers(module, mask, trials):
            packable = Packable(module, mask, pooling_layer)
            if _succeeds(trials.same_outputs, packable):
                return packable
    return None


def _pooling_layers(
    module: PreTrainedModel, mask: Mask, trials: _Trials
) -> Sequence[PoolingLayer | None]:
    """Return the pooling layers to try; None is for a head that does not pool."""
    if trials.per_token or isinstance(module, ModelWithPooling):
        return (None,)
    # A head that gets one vector for each text would look for the last token out of bounds, which
    # CUDA answers by ending all work of the process.
    if mask in DECODER_MASKS or reads_last_token(module):
        return ()
    return POOLING_LAYERS


def _succeeds(trial: Callable[[Packable], bool], packable: Packable) -> bool:
    try:
        return trial(packable)
    except Exception:  # noqa: BLE001 - each family refuses a mask in its own way
        return False


class _Trials:
    """Batches of texts, and what a module computes for each text alone."""

    @torch.inference_mode()
    def __init__(
        self,
        module: PreTrainedModel,
        trial: TrialRows,
        padding: Padding,
        names: tuple[str, ...],
        per_token: tuple[str, ...],
    ) -> None:
        self.names, self.per_token = names, per_token
        self._padding, self._exact = padding, module.dtype == torch.float32
        self._batches = [(texts, _pack(texts, padding)) for texts in trial.batches]
        alone = [[_run_alone(module, text, padding) for text in batch] for batch in trial.batches]
        self._states = [[states for states, _ in batch] for batch in alone]
        self._outputs = [
            [{name: to_numpy(outputs[name][0]) for name in names} for _, outputs in batch]
            for batch in alone
        ]

    @torch.inference_mode()
    def same_states(self, packable: Packable) -> bool:
        """Return whether packed texts have the hidden states that they have alone."""
        return all(
            self._states_agree(
                unpack({STATES: packable.hidden_states(packed.inputs)}, packed, texts, (STATES,)),
                alone,
            )
            for (texts, packed), alone in zip(self._batches, self._states, strict=True)
        )

    @torch.inference_mode()
    def same_outputs(self, packable: Packable) -> bool:
        """Return whether packed texts have the outputs that they have alone."""
        for (texts, packed), alone in zip(self._batches, self._outputs, strict=True):
            outputs = packable.forward(packed.inputs)
            read = {name: outputs[name] for name in self.names}
            found = unpack(read, packed, texts, self.per_token)
            if not outputs_agree(found, alone, self.names, exact=self._exact):
                return False
        return True

    def _states_agree(self, found: Sequence[RowOutputs], alone: Sequence[Any]) -> bool:
        """Compare the vectors of each text, relative to their norm."""
        tolerance = 1e-3 if self._exact else 1e-1
        pairs = ((row[STATES], expected) for row, expected in zip(found, alone, strict=True))
        return all(
            bool(np.linalg.norm(actual - expected) <= tolerance * np.linalg.norm(expected))
            for actual, expected in pairs
        )


def _pack(texts: Sequence[Row], padding: Padding) -> PackedBatch:
    """Return short texts in two rows, and others in one; its first text is not the longest."""
    order = [*range(len(texts))]
    short = sum(map(len, texts)) < WIDTHS[0]
    return pack(texts, [order[:-1], order[-1:]] if short else [order], padding)


def _run_alone(module: PreTrainedModel, text: Row, padding: Padding) -> tuple[Any, Outputs]:
    """Return the last hidden states, of shape (tokens, hidden), and the outputs of one text."""
    states: list[torch.Tensor] = []
    handle = module.base_model.register_forward_hook(
        lambda _module, _inputs, output: states.append(output[0])
    )
    batch = pad([text], padding)
    try:
        outputs = module(**{name: tensor.to(module.device) for name, tensor in batch.items()})
    finally:
        handle.remove()
    return to_numpy(states[0][0]), outputs


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
