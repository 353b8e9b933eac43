"""Whisper's `generate` for a model whose encoder and cache are not transformers' own."""

from __future__ import annotations

from typing import Any

import torch
from transformers import WhisperForConditionalGeneration


class WhisperWithOtherCache(WhisperForConditionalGeneration):
    """A Whisper whose `forward` makes the cache, which is no `Cache` and cannot be split by rows.

    Breaks when `generate` prepares a cache, expands the inputs of beams, or splits the outputs of
    rows by other methods than these.
    """

    def _prepare_cache_for_generation(self, *_: Any, **__: Any) -> None:
        """Leave the cache to `forward`."""

    @staticmethod
    def _expand_inputs_for_generation(
        expand_size: int = 1, encoder_outputs: Any = None, **arguments: Any
    ) -> tuple[Any, dict[str, Any]]:
        """Expand what each beam has; all beams of a row have the same audio."""
        arguments["is_encoder_decoder"] = False
        ids, others = WhisperForConditionalGeneration._expand_inputs_for_generation(
            expand_size, **arguments
        )
        return ids, {**others, "encoder_outputs": encoder_outputs}

    def _postprocess_outputs(self, seek_outputs: Any, **arguments: Any) -> Any:
        if not isinstance(seek_outputs, torch.Tensor):
            # They would be split by rows.
            missing = ("past_key_values", "decoder_attentions")
            kept = {name: each for name, each in seek_outputs.items() if name not in missing}
            seek_outputs = type(seek_outputs)(**kept)
        return super()._postprocess_outputs(seek_outputs=seek_outputs, **arguments)
