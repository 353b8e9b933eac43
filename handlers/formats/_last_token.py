"""Decoders that classify a text by its last token, where the config names no padding token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from transformers import PreTrainedModel

from handlers.checkpoints.checkpoint import Checkpoint

HEADS = ("score", "classifier")


def pool_last_token(module: PreTrainedModel, checkpoint: Checkpoint) -> None:
    """Make a classifier find the last token of each row by the attention mask.

    transformers finds it by the padding id of the config. Where there is none, it takes the last
    column, and refuses a batch. A text may end with any id that were named instead.

    Args:
        module: the model; others than such classifiers stay as they are.
        checkpoint: its checkpoint, whose padding id the config gets.
    """
    config = module.config.get_text_config()
    known = getattr(config, "pad_token_id", None)
    head = next((getattr(module, name) for name in HEADS if hasattr(module, name)), None)
    classifies_texts = "ForSequenceClassification" in type(module).__name__
    if head is None or not classifies_texts or (known is not None and known >= 0):
        return
    module.config.pad_token_id = config.pad_token_id = checkpoint.pad_token_id
    last_token = _LastToken()
    module.base_model.register_forward_pre_hook(last_token.read_mask, with_kwargs=True)
    head.register_forward_hook(last_token.repeat)


class _LastToken:
    """Repeats the output for the last token of a row in every column, whichever one is read."""

    def __init__(self) -> None:
        self._mask: torch.Tensor | None = None

    def read_mask(self, _module: Any, _inputs: Any, keywords: Mapping[str, Any]) -> None:
        """Remember the attention mask of this forward pass."""
        self._mask = keywords.get("attention_mask")

    def repeat(self, _module: Any, _inputs: Any, output: torch.Tensor) -> torch.Tensor:
        """Return the output of the head, of shape (rows, width, labels)."""
        mask = self._mask
        if mask is None or mask.ndim != 2 or mask.shape != output.shape[:2]:
            return output
        rows, width = mask.shape
        columns = torch.arange(width, device=mask.device)
        last = (mask * columns).argmax(1)
        picked = output[torch.arange(rows, device=output.device), last.to(output.device)]
        return picked[:, None].expand_as(output)
