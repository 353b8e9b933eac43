"""Checks that a checkpoint has the model head that its mode needs.

transformers initializes a missing head with random weights.
"""

from __future__ import annotations

from copy import deepcopy

import torch
import transformers
from transformers import PreTrainedConfig, PreTrainedModel

from handlers.compat.transformers import model_classes
from handlers.config.handler_section import HandlerSection
from handlers.errors import WrongCheckpoint, summarize

# The auto classes of models without a head, which are a part of every model of their type, and of
# the encoders of models that have a decoder as well.
BASE, ENCODER = BASES = ("AutoModel", "AutoModelForTextEncoding")
# How the names of these encoders end.
ENCODER_SUFFIX = "EncoderModel"


def check_head(config: PreTrainedConfig, handler: HandlerSection, auto_class_name: str) -> None:
    """Check that the architecture and labels of a checkpoint match the YAML.

    Only the config is needed, so a mistake is reported before weights are downloaded or loaded.

    Args:
        config: the config of the checkpoint.
        handler: the `handler` section.
        auto_class_name: transformers' auto class for the mode.

    Raises:
        WrongCheckpoint: the auto class does not support the model type, or, unless the YAML sets
            `allow_random_head`, the head or the number of labels differs.
    """
    checkpoint = handler.model_name or config.name_or_path or "the checkpoint"
    required = _class_name(config, auto_class_name, checkpoint)
    if handler.allow_random_head or auto_class_name in BASES:
        return
    _check_architecture(config, required, checkpoint)
    if auto_class_name.endswith("Classification"):
        _check_labels(config, handler.num_labels, checkpoint)


def base_class_for(config: PreTrainedConfig) -> str:
    """Return the auto class of the model without a head that reads a text.

    Of T5 and its kind, it is the encoder, as in sentence-transformers.
    """
    names = (each.__name__ for each in model_classes(ENCODER, config))
    return ENCODER if any(name.endswith(ENCODER_SUFFIX) for name in names) else BASE


def is_encoder(module: PreTrainedModel) -> bool:
    """Return whether a model is the encoder alone of one that has a decoder as well."""
    kind = type(module)
    return kind.__name__.endswith(ENCODER_SUFFIX) and kind in model_classes(ENCODER, module.config)


def _class_name(config: PreTrainedConfig, auto_class_name: str, checkpoint: str) -> str:
    """Return the model class of an auto class; building it on the meta device needs no memory."""
    auto_class = getattr(transformers, auto_class_name)
    try:
        with torch.device("meta"):
            model = auto_class.from_config(deepcopy(config), trust_remote_code=False)
    except (ValueError, ImportError) as error:
        raise WrongCheckpoint(
            checkpoint,
            f"is a {config.model_type} model, which {auto_class_name} does not support"
            f" ({summarize(error, 150)})",
            "use a checkpoint whose model type transformers supports for this mode",
        ) from None
    return type(model).__name__


def _check_architecture(config: PreTrainedConfig, required: str, checkpoint: str) -> None:
    architectures = config.architectures or []
    if architectures and required not in architectures:
        raise WrongCheckpoint(
            checkpoint,
            f"has a {' and a '.join(architectures)}, and this mode"
            f" needs a {required}, so its head would be random",
            "use a checkpoint that was fine-tuned for this mode, or set"
            " handler.allow_random_head: true",
        )


def _check_labels(config: PreTrainedConfig, num_labels: int | None, checkpoint: str) -> None:
    if num_labels not in (None, config.num_labels):
        raise WrongCheckpoint(
            checkpoint,
            f"has {config.num_labels} labels and handler.num_labels is {num_labels}",
            f"leave num_labels out or make it {config.num_labels}; for a new head with random"
            " weights set handler.allow_random_head: true",
        )
