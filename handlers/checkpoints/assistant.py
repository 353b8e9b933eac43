"""The checkpoint of a draft model, in a folder of the checkpoint that it drafts for."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

from transformers import PreTrainedModel

from handlers.checkpoints.checkpoint import Checkpoint, read_checkpoint
from handlers.checkpoints.model_spec import ModelSpec
from handlers.config.handler_section import ASSISTANT_FOLDER
from handlers.errors import WrongCheckpoint

LEAVE_OUT = "use another draft model, or leave handler.assistant_model out"


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
            "pack it with scripts/create_archive.py, which adds it",
        )
    checkpoint = read_checkpoint(folder, spec.config.handler)
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
