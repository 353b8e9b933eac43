"""Whether a checkpoint brings the head that its mode needs; one that it lacks would be random."""

from __future__ import annotations

from copy import deepcopy

import torch
import transformers
from transformers import PreTrainedConfig

from handlers.config.handler_section import HandlerSection
from handlers.errors import WrongCheckpoint, summarize


def check_head(config: PreTrainedConfig, handler: HandlerSection, auto_class_name: str) -> None:
    """Compare a checkpoint's architecture and labels with what its YAML asks for.

    Only the config is read, so a mistake is found before any weights are downloaded or loaded.

    Raises:
        WrongCheckpoint: when the auto class knows no such model, or, unless the YAML sets
            `allow_random_head`, when the head or the number of labels is another one.
    """
    place = handler.model_name or config.name_or_path or "the checkpoint"
    wanted = _class_name(config, auto_class_name, place)
    if handler.allow_random_head:
        return
    _check_architecture(config, wanted, place)
    if auto_class_name.endswith("Classification"):
        _check_labels(config, handler.num_labels, place)


def _class_name(config: PreTrainedConfig, auto_class_name: str, place: str) -> str:
    """Name the class that the auto class picks; one is built on the meta device, without memory."""
    auto_class = getattr(transformers, auto_class_name)
    try:
        with torch.device("meta"):
            model = auto_class.from_config(deepcopy(config), trust_remote_code=False)
    except (ValueError, ImportError) as error:
        raise WrongCheckpoint(
            place,
            f"is a {config.model_type} model, of which {auto_class_name} knows none"
            f" ({summarize(error, 150)})",
            "name a checkpoint of a model type that transformers itself has for this mode",
        ) from None
    return type(model).__name__


def _check_architecture(config: PreTrainedConfig, wanted: str, place: str) -> None:
    found = config.architectures or []
    if found and wanted not in found:
        raise WrongCheckpoint(
            place,
            f"holds {' and '.join(found)} where this mode"
            f" needs {wanted}, so its head would be random",
            "name a checkpoint that was fine-tuned for this mode, or set"
            " handler.allow_random_head: true",
        )


def _check_labels(config: PreTrainedConfig, num_labels: int | None, place: str) -> None:
    if num_labels not in (None, config.num_labels):
        raise WrongCheckpoint(
            place,
            f"has {config.num_labels} labels and handler.num_labels is {num_labels}",
            f"leave num_labels out or make it {config.num_labels}; for a new head with random"
            " weights set handler.allow_random_head: true",
        )
