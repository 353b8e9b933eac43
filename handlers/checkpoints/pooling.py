"""Reductions: what a model computes for tokens, reduced in its graph to one output for each text.

A reduction runs behind the model, in packed and in padded rows and in every exported graph, so that
only its results leave the engine. A task names its own with `BaseTask.reduction`:

    class Maximum(PoolingHead):
        reads = "logits"
        writes = "weights"

        def forward(self, values, slots):
            return slots.maximum(torch.log1p(torch.relu(values)))
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, ParamSpec, TypeVar, cast

import torch
from transformers import PreTrainedModel

from ..batching.sequence_packing import COLUMNS, ROWS, SEGMENTS

# An input of a row with several chunks: the number of each token's chunk from 1, 0 for padding.
CHUNKS = "chunks"

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def not_compiled(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """Have torch.compile leave out a function: its shapes depend on what each request holds."""
    return cast("Callable[Arguments, Result]", torch.compiler.disable(function))


@dataclass(frozen=True)
class TextSlots:
    """The slots of a batch that hold the tokens of each text, in packed or in padded rows.

    The slots of a text are consecutive. One of a row of padding alone has none.

    Attributes:
        members: whether a slot holds a token of a text. Shape: (texts, rows * width).
    """

    members: torch.Tensor

    @classmethod
    def of_mask(cls, mask: torch.Tensor) -> TextSlots:
        """Return the slots of padded rows, one text each; the mask has shape (rows, width)."""
        numbers = torch.ones_like(mask[:, 0]).cumsum(0)
        same = numbers[:, None] == numbers[None]
        return cls((same[:, :, None] & mask.bool()[None]).flatten(1))

    @classmethod
    def of_packed(cls, packed: Mapping[str, torch.Tensor]) -> TextSlots:
        """Return the slots of packed rows.

        Args:
            packed: the tensors of `PackedBatch.inputs`.
        """
        segments = packed[SEGMENTS]
        texts = segments[packed[ROWS], packed[COLUMNS]]
        return cls(texts[:, None] == segments.flatten()[None])

    @classmethod
    def of_chunks(cls, chunks: torch.Tensor) -> TextSlots:
        """Return the slots of the chunks of a row.

        Args:
            chunks: the number of each token's chunk, from 1; 0 for padding. Shape: (1, width).
        """
        numbers = torch.arange(1, int(chunks.max()) + 1, device=chunks.device)
        return cls(numbers[:, None] == chunks)

    @property
    def lengths(self) -> torch.Tensor:
        """The number of tokens of each text, at least one. Shape: (texts, 1)."""
        return self.members.sum(1, keepdim=True).clamp(min=1)

    @property
    def positions(self) -> torch.Tensor:
        """The position of each token in its text, from 1; 0 for padding. Shape: (rows * width,)."""
        return (self.members.long().cumsum(1) * self.members).sum(0)

    def without(self, excluded: torch.Tensor) -> TextSlots:
        """Return the slots of fewer tokens.

        Args:
            excluded: 1 for slots to leave out. Shape: (rows, width).
        """
        return replace(self, members=self.members & (excluded == 0).flatten()[None])

    def sum(self, values: torch.Tensor, weights: torch.Tensor | None = None) -> torch.Tensor:
        """Return the sum over the tokens of each text. Shape: (texts, size).

        Args:
            values: a vector for each slot. Shape: (rows, width, size).
            weights: a factor for each slot. Shape: (rows * width,).
        """
        flat = self._zero_padding(values)
        members = self.members.to(flat.dtype)
        return (members if weights is None else members * weights.to(flat.dtype)) @ flat

    def maximum(self, values: torch.Tensor) -> torch.Tensor:
        """Return the largest value over the tokens of each text. Shape: (texts, size).

        Args:
            values: a vector for each slot. Shape: (rows, width, size).
        """
        flat = values.flatten(0, 1)
        # `len` would be a constant in an exported graph.
        texts = self.members.shape[0]
        text_of_slot = (self.members * _numbers(self.members[:, 0])[:, None]).sum(0)
        text_of_slot = torch.where(self.members.any(0), text_of_slot, texts)
        lowest = torch.finfo(flat.dtype).min
        largest = flat.new_full((texts + 1, flat.shape[1]), lowest)
        largest = largest.scatter_reduce(0, text_of_slot[:, None].expand_as(flat), flat, "amax")
        return largest[:-1]

    def first(self, values: torch.Tensor) -> torch.Tensor:
        """Return the vector of the first token of each text. Shape: (texts, size)."""
        return self._of_texts(values.flatten(0, 1)[self._starts])

    def last(self, values: torch.Tensor) -> torch.Tensor:
        """Return the vector of the last token of each text. Shape: (texts, size)."""
        return self._of_texts(values.flatten(0, 1)[self._starts + self.lengths[:, 0] - 1])

    @property
    def _starts(self) -> torch.Tensor:
        # `argmax` over all slots takes OpenVINO as long as a layer of a small model.
        last = self.members.shape[1] - 1
        return torch.where(self.members, _numbers(self.members[0]), last).amin(1)

    def _of_texts(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return a vector for each text, of zeros for one without tokens."""
        return torch.where(self.members.any(1)[:, None], vectors, 0)

    def _zero_padding(self, values: torch.Tensor) -> torch.Tensor:
        """Return a vector for each slot, of zeros for padding, whose values may be NaN."""
        return torch.where(self.members.any(0)[:, None], values.flatten(0, 1), 0)


def _numbers(values: torch.Tensor) -> torch.Tensor:
    """Return 0, 1, 2 and so on, as many as there are values, also in an exported graph."""
    return torch.ones_like(values, dtype=torch.long).cumsum(0) - 1


class PoolingHead(torch.nn.Module):
    """What the outputs of a model for tokens become in its graph.

    Attributes:
        inputs: names of inputs that the reduction reads, and the model does not: a number for each
            token among the features of a row.
        pools: whether there is one result for each text, and not for each token.
    """

    reads: ClassVar[str] = "last_hidden_state"
    writes: ClassVar[str]
    inputs: tuple[str, ...] = ()
    pools: ClassVar[bool] = True

    def prepare(self, module: PreTrainedModel) -> PreTrainedModel:
        """Return the part of a model that runs before the reduction; by default all of it."""
        return module

    @abstractmethod
    def forward(
        self, values: torch.Tensor, slots: TextSlots, **inputs: torch.Tensor
    ) -> torch.Tensor:
        """Return the result for each text, of shape (texts, ...), or for each slot.

        Args:
            values: the output `reads` of the model. Shape: (rows, width, size).
            **inputs: the tensors of `inputs`. Shape: (rows, width).
        """

    def outputs(
        self, values: torch.Tensor, slots: TextSlots, **inputs: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """Return all results by their names; by default the one of `forward`."""
        return {self.writes: self(values, slots, **inputs)}


class ModelWithPooling(PreTrainedModel):
    """A model with a reduction behind it."""

    # The model has chosen its attention; this class must only not refuse it.
    _supports_sdpa = _supports_flash_attn = _supports_flex_attn = True
    _supports_attention_backend = True

    def __init__(self, module: PreTrainedModel, reduction: PoolingHead) -> None:
        super().__init__(module.config)
        self.module = reduction.prepare(module)
        self.reduction = reduction.to(module.device)

    @property
    def base_model(self) -> torch.nn.Module:
        return self.module.base_model

    def get_input_embeddings(self) -> Any:
        return self.module.get_input_embeddings()

    def get_output_embeddings(self) -> Any:
        return self.module.get_output_embeddings()

    def forward(
        self,
        *,
        slots: TextSlots | None = None,
        chunks: torch.Tensor | None = None,
        **inputs: Any,
    ) -> dict[str, torch.Tensor]:
        """Return the results of the reduction by their names.

        Args:
            slots: the slots of each text; by default from the attention mask.
            chunks: the number of each token's chunk in a single row, whose results then have shape
                (1, chunks, ...); see :meth:`TextSlots.of_chunks`.
            **inputs: the inputs of the model and of the reduction.
        """
        if chunks is not None:
            found = self.forward(slots=TextSlots.of_chunks(chunks), **inputs)
            return {name: each[None] for name, each in found.items()}
        own = {name: inputs.pop(name) for name in self.reduction.inputs if name in inputs}
        slots = slots or TextSlots.of_mask(inputs["attention_mask"])
        values = self.module(**inputs)[self.reduction.reads]
        return self.reduction.outputs(values, slots, **own)

    def model_inputs(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return inputs without those that only the reduction reads."""
        return {name: each for name, each in inputs.items() if name not in self.reduction.inputs}
