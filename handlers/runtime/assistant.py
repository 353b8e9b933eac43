"""A draft model, whose tokens the model confirms several at a time."""

from __future__ import annotations

import copy
from typing import Any

from transformers import PreTrainedModel


class Assistant:
    """The draft model of assisted decoding.

    Args:
        module: the draft model.
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
