"""The interface of a loaded model, the same for every format."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from transformers import GenerationConfig, PreTrainedModel

from .batching.padding import Padding
from .batching.rows import Row, TrialRows
from .batching.sequence_packing import PackedBatch
from .checkpoints.trial_results import TrialResults
from .config.handler_section import Compile
from .process.deadline import NO_DEADLINE, Deadline
from .types.model_info import GenerationInfo

Result = TypeVar("Result")


class Assistant:
    """The draft model of assisted decoding.

    Args:
        limit: the number of its positions; None where it has no limit.
    """

    def __init__(self, module: PreTrainedModel, limit: int | None) -> None:
        self.limit = limit
        self._module, self._defaults = module, module.generation_config

    def for_generate(self, tokens: int | None, threshold: float | None) -> dict[str, Any]:
        """Return the arguments of transformers' `generate` for the next text.

        transformers reads the settings of drafts from the config of the draft model.

        Args:
            tokens: `num_assistant_tokens`; None for the draft model's own.
            threshold: `assistant_confidence_threshold`; None for the draft model's own.
        """
        given = {"num_assistant_tokens": tokens, "assistant_confidence_threshold": threshold}
        config = copy.deepcopy(self._defaults)
        config.update(**{name: value for name, value in given.items() if value is not None})
        self._module.generation_config = config
        return {"assistant_model": self._module}


@dataclass(frozen=True)
class ModelCapabilities:
    """What a loaded model can do, and how.

    Attributes:
        supports_packing: whether it runs packed rows.
        packs_one_row: whether all texts of a packed forward are in one row, so that a forward
            may have many.
        pools_chunks: whether it makes a vector of each chunk of a row that has several.
        supports_prompt_lookup: whether it generates with `prompt_lookup_num_tokens`.
        supports_paging: whether transformers' continuous batching may run it.
        has_adapters: whether it has LoRA adapters.
        mixes_adapters: whether rows with different ones may share a batch.
        runs_concurrently: whether several threads may pass it requests; it schedules them itself.
        compiles_shapes: whether the first batch of each shape is slow, so that few shapes should be
            used.
        on_accelerator: whether its forward runs on an accelerator, which is faster with more rows.
        full_precision: whether it is known to compute in float32.
    """

    supports_packing: bool = False
    packs_one_row: bool = False
    pools_chunks: bool = False
    supports_prompt_lookup: bool = False
    supports_paging: bool = False
    has_adapters: bool = False
    mixes_adapters: bool = True
    runs_concurrently: bool = False
    compiles_shapes: bool = False
    on_accelerator: bool = False
    full_precision: bool = False


NO_CAPABILITIES = ModelCapabilities()


@dataclass(frozen=True)
class GraphLimits:
    """What packed forwards that run as CUDA graphs have at most.

    Attributes:
        budget: the tokens of a forward.
        longest: the tokens of a text.
        per_token: names of the outputs that have a value for each token.
    """

    budget: int
    longest: int
    per_token: tuple[str, ...]


class Model(ABC):
    """A loaded model.

    Attributes:
        padded_limit: the longest row, with the tokens that are generated after it, that may share a
            batch with rows of other lengths. A trial at load sets it: it is infinite where padding
            changes no outputs, and 0 where a row beside a longer one has other outputs than alone.
        assistant: the draft model of assisted decoding; None without one.
        runs_alone: whether even rows of equal length have other outputs together than alone.
    """

    capabilities: ModelCapabilities = NO_CAPABILITIES
    padded_limit: float = math.inf
    runs_alone: bool = False
    assistant: Assistant | None = None

    @abstractmethod
    def forward(self, batch: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        """Run a padded batch without gradients and return the outputs that the task needs."""

    def embed_images(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return the embeddings of images, which `forward` takes as `image_embeddings`."""
        raise NotImplementedError

    def pack(self, trial: TrialRows, padding: Padding, per_token: tuple[str, ...]) -> bool:
        """Enable packed rows if the model supports them, and return whether it does.

        Args:
            per_token: names of the outputs that have a value for each token.
        """
        return False

    @property
    def trial_results(self) -> TrialResults | None:
        """What the trials at load have found; None for a model whose results are not recorded."""
        return None

    def take_trial_results(self, results: TrialResults) -> None:
        """Set what the trials would find.

        Raises:
            ValueError: there is no such way to pack rows.
        """
        raise NotImplementedError

    def forward_packed(self, packed: PackedBatch) -> Mapping[str, torch.Tensor]:
        """Run packed rows without gradients and return the outputs that the task needs."""
        raise NotImplementedError

    def record_graphs(  # noqa: B027 - most models have none
        self, texts: Sequence[Row], padding: Padding, limits: GraphLimits
    ) -> None:
        """Record forwards of packed rows as CUDA graphs, where the model runs them as such.

        Args:
            texts: distinct rows, whose outputs with and without graphs are compared.
        """

    def read_prefix(self, ids: Sequence[int]) -> Any:
        """Return what others need of tokens that several rows begin with.

        Others are :meth:`last_scores`, and :meth:`forward_after` of a model with a reduction.

        It is None where rows that continue a prefix may have other scores than whole ones.
        """
        return None

    def forward_after(
        self, prefix: Any, batch: Mapping[str, torch.Tensor]
    ) -> Mapping[str, torch.Tensor]:
        """Run a batch, padded on the right, whose rows continue what :meth:`read_prefix` returns.

        The model has a reduction, whose results are as for the whole rows.
        """
        raise NotImplementedError

    def last_scores(
        self, batch: Mapping[str, torch.Tensor], lengths: Sequence[int], prefix: Any = None
    ) -> np.ndarray[Any, np.dtype[np.float32]]:
        """Return the scores of the token after each row of a decoder. Shape: (rows, vocabulary).

        Args:
            batch: the rows, padded on the right.
            lengths: the number of tokens of each.
            prefix: what :meth:`read_prefix` returns of the tokens before each row.
        """
        raise NotImplementedError

    def adapter_number(self, name: str | None) -> int:
        """Return the number of a LoRA adapter in :data:`ADAPTER_IDS`; 0 for the model itself.

        Raises:
            Unprocessable: only adapters have the head of the mode, and there is no name.
        """
        return 0

    def release_adapters(self) -> int:
        """Drop LoRA adapters if too many are loaded, the last used ones not; return how many."""
        return 0

    def with_adapters(self, adapters: Sequence[str | None]) -> AbstractContextManager[None]:
        """Run the forwards and generations in a block with LoRA adapters.

        Args:
            adapters: the name of each row's adapter, None for the model itself; rows that are
                generated for the same prompt count each. Where all are equal, the number of rows is
                free.
        """
        return nullcontext()

    @property
    def generation(self) -> GenerationInfo:
        """How its texts are generated."""
        return GenerationInfo()

    @property
    def load_metrics(self) -> Mapping[str, float]:
        """Numbers about the running sequences of a model that schedules them itself."""
        return {}

    @property
    def has_failed(self) -> bool:
        """Whether what runs it has ended, so that its process has to be replaced."""
        return False

    def compile(self, options: Compile | None) -> bool:
        """Compile the forward pass with torch.compile at its next call, or undo that with None.

        Returns:
            Whether the forward pass is compiled.
        """
        return False

    @property
    def embeddings(self) -> Sequence[torch.nn.Module]:
        """The input embedding layer, and others that share its weights.

        There are none if the format has no gradients, or the model has no such layer.
        """
        return ()

    @property
    def has_gradients(self) -> bool:
        """Whether explanations may use gradients."""
        return bool(self.embeddings)

    def forward_with_gradients(
        self, batch: Mapping[str, torch.Tensor]
    ) -> Mapping[str, torch.Tensor]:
        """Run a padded batch, with gradients if the format has them."""
        return self.forward(batch)

    def run_exclusively(
        self, function: Callable[[], Result], deadline: Deadline = NO_DEADLINE
    ) -> Result:
        """Call a function that runs the model, while nothing else runs it.

        Raises:
            DeadlineExceeded: others run it until the deadline.
        """
        return function()

    @abstractmethod
    def generate(
        self, batch: Mapping[str, torch.Tensor], config: GenerationConfig, **extra: Any
    ) -> torch.Tensor:
        """Generate text.

        Args:
            **extra: further arguments of transformers' `generate`.

        Returns:
            Prompts and generated token ids. Shape: (rows * num_return_sequences, tokens).
        """

    def generate_outputs(
        self, batch: Mapping[str, torch.Tensor], config: GenerationConfig, **extra: Any
    ) -> Any:
        """Generate as :meth:`generate` does, and return what transformers' `generate` returns."""
        return self.generate(batch, config, **extra)


class ForwardOnlyModel(Model):
    """A model that cannot generate text; the format rejects the YAML of a generating task."""

    def generate(
        self, batch: Mapping[str, torch.Tensor], config: GenerationConfig, **extra: Any
    ) -> torch.Tensor:
        raise NotImplementedError
