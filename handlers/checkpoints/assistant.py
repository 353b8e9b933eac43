"""The checkpoint of a draft model, in a folder of the checkpoint that it drafts for."""

from __future__ import annotations

from dataclasses import replace

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
