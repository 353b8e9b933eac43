"""Packed rows on transformers modules; whether a module supports them is determined by a trial.

On a GPU all texts of a forward are in one row, and attention of variable length computes each text
by itself. Elsewhere, and for modules without transformers' interface of attention, a mask separates
the texts of a row.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from math import isinf
from typing import Any

import numpy as np
import torch
from transformers import AttentionInterface, PreTrainedModel
from transformers.utils import is_flash_attn_2_available

from ..batching.padding import HostCopy, Padding, Tensors, move_together, pad, to_numpy
from ..batching.rows import Outputs as RowOutputs
from ..batching.rows import Row, TrialRows, outputs_agree
from ..batching.sequence_packing import (
    BORDERS,
    COLUMNS,
    ROWS,
    SEGMENTS,
    WIDTHS,
    PackedBatch,
    pack,
    unpack,
    with_borders,
    with_first_slots,
)
from ..checkpoints.architecture import first_position
from ..checkpoints.pooling import ModelWithPooling, TextSlots
from ..compat.transformers import reads_last_token, with_attention

varlen_attn: Any = None
with suppress(ImportError):  # torch before 2.10 does not have it
    from torch.nn.attention.varlen import varlen_attn

logger = logging.getLogger(__name__)

STATES = "hidden_states"
VARIABLE_LENGTH = "variable_length"  # in transformers' `AttentionInterface`
SHORT_DTYPES = (torch.bfloat16, torch.float16)
# Inputs that say where texts are, which no module takes.
OF_TEXTS = (SEGMENTS, ROWS, COLUMNS, BORDERS)
# Arguments of attention that change its scores.
CHANGING = ("softcap", "s_aux", "position_bias")
Outputs = Mapping[str, torch.Tensor]
PoolingLayer = Callable[[PreTrainedModel], torch.nn.Module]
# Converts two matrices of shape (rows, width, width) to the attention mask of a module: the tokens
# of the same text, and how far the first of two is behind the second.
Mask = Callable[[PreTrainedModel, torch.Tensor, torch.Tensor], Any]


@dataclass(frozen=True)
class Packable:
    """A module that has the same outputs for packed texts as for each text alone.

    Attributes:
        mask: makes the attention mask of the module; :func:`no_mask` for attention of variable
            length.
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
            packable = cls(module, (*MASKS, *DECODER_MASKS, no_mask)[mask], pooling)
        except IndexError:
            raise ValueError((mask, pooling_layer)) from None
        if packable.one_row and variable_length_of(module) is None:
            raise ValueError((mask, pooling_layer))
        return packable

    @property
    def numbers(self) -> tuple[int, int | None]:
        """The numbers of the mask and of the pooling layer, if there is one."""
        layer = self.pooling_layer
        number = (*MASKS, *DECODER_MASKS, no_mask).index(self.mask)
        return number, None if layer is None else POOLING_LAYERS.index(layer)

    @property
    def pools(self) -> bool:
        """Whether the head has one output for each text."""
        if isinstance(self.module, ModelWithPooling):
            return self.module.reduction.pools
        return self.pooling_layer is not None

    @property
    def one_row(self) -> bool:
        """Whether all texts of a forward are in one row."""
        return self.mask is no_mask

    def forward(self, packed: Mapping[str, torch.Tensor]) -> Outputs:
        """Return the outputs for each slot, or for each text if the head pools.

        Args:
            packed: the tensors of :attr:`PackedBatch.inputs`.
        """
        inputs, longest = self.host_inputs(packed)
        return self.compute(move_together(inputs, self.module.device), longest)

    def host_inputs(self, packed: Mapping[str, torch.Tensor]) -> tuple[Tensors, int]:
        """Return the tensors that go to the device, and the tokens of the longest text."""
        if not self.one_row:
            return dict(packed), packed[SEGMENTS].shape[1]
        inputs = with_borders(packed)
        return inputs, int(inputs[BORDERS].diff().max())

    def compute(self, inputs: Mapping[str, torch.Tensor], longest: int) -> Outputs:
        """Return the outputs of what :meth:`host_inputs` returns, which is on the device now."""
        packed = with_first_slots(inputs) if self.one_row else inputs
        arguments = self._arguments(inputs, longest)
        with self._attention():
            if isinstance(self.module, ModelWithPooling):
                return self._call({**arguments, "slots": TextSlots.of_packed(packed)})
            if self.pooling_layer is None:
                return self._call(arguments)
            starts = packed[ROWS], packed[COLUMNS]
            with _only_first_vectors(self.pooling_layer(self.module), starts):
                return self._call(arguments)

    def hidden_states(self, packed: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return the last hidden states without the head. Shape: (rows, width, hidden)."""
        inputs, longest = self.host_inputs(packed)
        arguments = self._arguments(move_together(inputs, self.module.device), longest)
        if isinstance(self.module, ModelWithPooling):
            arguments = self.module.model_inputs(arguments)
        with self._attention():
            states: torch.Tensor = self.module.base_model(**arguments)[0]
        return states

    def _attention(self) -> AbstractContextManager[None]:
        if not self.one_row:
            return nullcontext()
        config = self.module.config.get_text_config()
        return with_attention(config, variable_length_of(self.module))

    def _arguments(self, inputs: Mapping[str, torch.Tensor], longest: int) -> dict[str, Any]:
        """Return the arguments of the module, whose attention keeps the texts apart."""
        given = {name: tensor for name, tensor in inputs.items() if name not in OF_TEXTS}
        positions = inputs["position_ids"]
        given["position_ids"] = positions + first_position(self.module.config)
        if self.one_row:
            borders = inputs[BORDERS].int()
            return {
                **given,
                "cu_seq_lens_q": borders,
                "cu_seq_lens_k": borders,
                "max_length_q": longest,
                "max_length_k": longest,
            }
        segments = inputs[SEGMENTS]
        same = segments[:, :, None] == segments[:, None, :]
        distance = positions[:, :, None] - positions[:, None, :]
        return {**given, "attention_mask": self.mask(self.module, same, distance)}

    def _call(self, inputs: Mapping[str, Any]) -> Outputs:
        outputs: Outputs = self.module(**inputs)
        return outputs


def no_mask(_module: PreTrainedModel, _same: torch.Tensor, _distance: torch.Tensor) -> None:
    """Return no mask, as attention of variable length has the borders between texts."""


def variable_length_of(module: PreTrainedModel) -> str | None:
    """Return the name of the attention of variable length for a module; None if there is none.

    torch has one, and the package flash-attn. Both run on GPUs, in 16 bits.
    """
    devices = getattr(module, "hf_device_map", {}).values()
    if module.device.type != "cuda" or len(set(devices)) > 1 or module.dtype not in SHORT_DTYPES:
        return None
    if varlen_attn is not None:
        return VARIABLE_LENGTH
    return "flash_attention_2" if is_flash_attn_2_available() else None


def variable_length_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    _mask: torch.Tensor | None,
    *,
    cu_seq_lens_q: torch.Tensor,
    max_length_q: int,
    scaling: float | None = None,
    sliding_window: int | None = None,
    is_causal: bool | None = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """Compute attention within each text of a row, by the function of torch.

    Args:
        query: the vectors of all tokens, as `key` and `value`. Shape: (1, heads, tokens, size).
        cu_seq_lens_q: the borders between texts. Tokens behind the last have any values.
            Shape: (texts + 1,).
        max_length_q: the tokens of the longest text, or more.
        sliding_window: a token reads fewer than this number of tokens before it and after it.

    Returns:
        The vectors of all tokens, of shape (1, tokens, heads, size), and no weights.

    Raises:
        NotImplementedError: the module asks for what the function of torch does not have.
    """
    if unknown := [name for name in CHANGING if others.get(name) is not None]:
        raise NotImplementedError(unknown[0])
    causal = getattr(module, "is_causal", False) if is_causal is None else is_causal
    reach = -1 if sliding_window is None else sliding_window - 1
    borders = cu_seq_lens_q
    attended = varlen_attn(
        query[0].transpose(0, 1),
        key[0].transpose(0, 1),
        value[0].transpose(0, 1),
        borders,
        borders,
        max_length_q,
        max_length_q,
        scale=scaling,
        window_size=(reach, 0 if causal else reach),
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return attended[None], None


AttentionInterface.register(VARIABLE_LENGTH, variable_length_attention)


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
    first = (no_mask,) if variable_length_of(module) else ()
    for mask in (*first, *MASKS, *DECODER_MASKS):
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
    is_causal = any(getattr(layer, "is_causal", False) for layer in module.modules())
    if mask in DECODER_MASKS or (mask is no_mask and is_causal) or reads_last_token(module):
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
        self._texts = trial.batches
        alone = [[_run_alone(module, text, padding) for text in batch] for batch in trial.batches]
        self._states = [[states for states, _ in batch] for batch in alone]
        self._outputs = [
            [{name: to_numpy(outputs[name][0]) for name in names} for _, outputs in batch]
            for batch in alone
        ]

    @torch.inference_mode()
    def same_states(self, packable: Packable) -> bool:
        """Return whether packed texts have the hidden states that they have alone."""
        for texts, alone in zip(self._texts, self._states, strict=True):
            packed = _pack(texts, self._padding, packable)
            found = HostCopy({STATES: packable.hidden_states(packed.inputs)}).arrays()
            if not self._states_agree(unpack(found, packed, texts, (STATES,)), alone):
                return False
        return True

    @torch.inference_mode()
    def same_outputs(self, packable: Packable) -> bool:
        """Return whether packed texts have the outputs that they have alone."""
        for texts, alone in zip(self._texts, self._outputs, strict=True):
            packed = _pack(texts, self._padding, packable)
            outputs = packable.forward(packed.inputs)
            read = HostCopy({name: outputs[name] for name in self.names}).arrays()
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


def _pack(texts: Sequence[Row], padding: Padding, packable: Packable) -> PackedBatch:
    """Return short texts in two rows, and others in one; its first text is not the longest."""
    order = [*range(len(texts))]
    short = sum(map(len, texts)) < WIDTHS[0] and not packable.one_row
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
