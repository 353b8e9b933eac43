"""What `generate` does not offer as an argument."""

from __future__ import annotations

from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList


def default_settings(config: GenerationConfig) -> dict[str, Any]:
    """Return the values that `generate` has where neither its arguments nor the config has one.

    Breaks when `_get_default_generation_params` is renamed or takes arguments.
    """
    return dict(config._get_default_generation_params())


def run_before_other_processors(processor: LogitsProcessor) -> dict[str, Any]:
    """Return the arguments of `generate` with which a processor sees the logits of the model.

    The processors that `generate` takes run after its own ones, which have changed the logits.

    Breaks when `custom_generate` is not called with the processors as `logits_processor`, or
    `_sample` is not the loop of sampling and of greedy search any more.
    """

    def sample(
        model: Any, input_ids: torch.Tensor, logits_processor: LogitsProcessorList, **options: Any
    ) -> Any:
        processors = LogitsProcessorList([processor, *logits_processor])
        return model._sample(input_ids, logits_processor=processors, **options)

    return {"custom_generate": sample}
