"""The specification of a model to load or export."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from ..batching.padding import Padding, Tensors
from ..batching.rows import Outputs, RowKind
from ..config.handler_section import ASSISTANT_FOLDER, CHECKPOINT
from ..config.model_config import ModelConfig
from ..errors import WrongCheckpoint
from ..types.model_info import ModelOutputs
from .checkpoint import Checkpoint
from .pooling import PoolingHead

WEIGHTS = "*.safetensors"
LEAVE_OUT = "use another draft model, or leave handler.assistant_model out"


def unchanged(outputs: Outputs) -> Outputs:
    """Return outputs whose last axis has the scores of one decision already."""
    return outputs


@dataclass(frozen=True)
class ModelSpec:
    """The model that a format loads or exports, independent of the task.

    Attributes:
        directory: the weights. For an exported model it can lack the other checkpoint files.
        calibration: representative batches for a quantized export.
        padding: padding ids, if the export should support packed rows where possible.
        decision_scores: returns outputs whose last axis has the scores of one decision.
        reduction: returns what reduces the outputs of the model in its graph; None where they stay
            as they are.
        wrapper: returns the model that is run in the place of the loaded one; None for itself.
    """

    directory: Path
    checkpoint: Checkpoint
    auto_class: str
    outputs: ModelOutputs
    config: ModelConfig
    device: torch.device
    calibration: Sequence[Tensors] = ()
    padding: Padding | None = None
    row_kind: RowKind = "tokens"
    decision_scores: Callable[[Outputs], Outputs] = unchanged
    reduction: Callable[[], PoolingHead] | None = None
    wrapper: Callable[[PreTrainedModel], PreTrainedModel] | None = None

    def with_settings(self, **settings: Any) -> ModelSpec:
        """Return a copy with other values for keys of the `handler` section."""
        handler = self.config.handler.model_copy(update=settings)
        return replace(self, config=self.config.model_copy(update={"handler": handler}))

    @property
    def has_weights(self) -> bool:
        """Whether the weights of the checkpoint are in the directory."""
        return any(self.directory.glob(WEIGHTS))

    def of_checkpoint(self, dtype: str) -> ModelSpec:
        """Return the spec of the checkpoint in the directory of an exported model."""
        static = replace(self, config=self.config.model_copy(update={"continuousBatching": None}))
        return static.with_settings(save_mode=CHECKPOINT, dtype=dtype)

    def in_float32(self) -> ModelSpec:
        """Return a copy with dtype float32."""
        return self.with_settings(dtype="float32")


def specify_assistant(spec: ModelSpec) -> ModelSpec:
    """Return the specification of the draft model of a model.

    Raises:
        WrongCheckpoint: it is missing, cannot be read, or has other tokens than the model.
    """
    folder = spec.directory / ASSISTANT_FOLDER
    if not folder.is_dir():
        raise WrongCheckpoint(
            ASSISTANT_FOLDER,
            "is missing beside the checkpoint",
            "pack it with `hf-serve pack` (scripts/create_archive.py), which adds it",
        )
    checkpoint = Checkpoint.read(folder, spec.config.handler)
    _check_tokens(checkpoint, spec.checkpoint)
    return replace(spec, directory=folder, checkpoint=checkpoint)


def _check_tokens(draft: Checkpoint, main: Checkpoint) -> None:
    if draft.text_tokenizer.get_vocab() != main.text_tokenizer.get_vocab():
        raise WrongCheckpoint(ASSISTANT_FOLDER, "has another tokenizer than the model", LEAVE_OUT)
    if draft.vocab_size != main.vocab_size:
        raise WrongCheckpoint(
            ASSISTANT_FOLDER,
            f"has a vocabulary of {draft.vocab_size:,} ids, and the model {main.vocab_size:,}",
            LEAVE_OUT,
        )
