"""The tables from which transformers' auto classes choose a class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import transformers
from transformers import PreTrainedConfig, ProcessorMixin
from transformers.models.auto import modeling_auto
from transformers.models.auto.processing_auto import PROCESSOR_MAPPING
from transformers.models.auto.tokenization_auto import (
    TOKENIZER_MAPPING_NAMES,
    tokenizer_class_from_name,
)


def model_classes(auto_class: str, config: PreTrainedConfig) -> Sequence[type]:
    """Return the classes that an auto class has for a config.

    Breaks when auto classes have no `_model_mapping` from classes of configs.
    """
    found = getattr(transformers, auto_class)._model_mapping.get(type(config), ())
    return found if isinstance(found, tuple) else (found,)


def has_causal_head(model_type: str) -> bool:
    """Return whether a model type can be a causal language model.

    Breaks when `MODEL_FOR_CAUSAL_LM_MAPPING_NAMES` is renamed.
    """
    return model_type in modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES


def has_masked_head(model_type: str) -> bool:
    """Return whether a model type can be a masked language model.

    Breaks when `MODEL_FOR_MASKED_LM_MAPPING_NAMES` is renamed.
    """
    return model_type in modeling_auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES


def has_ctc_head(model_type: str) -> bool:
    """Return whether a model type recognizes speech by CTC.

    Breaks when `MODEL_FOR_CTC_MAPPING_NAMES` is renamed.
    """
    return model_type in modeling_auto.MODEL_FOR_CTC_MAPPING_NAMES


def has_universal_segmentation_head(model_type: str) -> bool:
    """Return whether a model type segments images in each of the three ways.

    Breaks when `MODEL_FOR_UNIVERSAL_SEGMENTATION_MAPPING_NAMES` is renamed.
    """
    return model_type in modeling_auto.MODEL_FOR_UNIVERSAL_SEGMENTATION_MAPPING_NAMES


def text_encoder_class(model_type: str) -> str:
    """Return the class of `AutoModelForTextEncoding` for a model type; "" if there is none.

    Breaks when `MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES` is renamed.
    """
    return str(modeling_auto.MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES.get(model_type, ""))


def is_text_encoder_class(name: str) -> bool:
    """Return whether `AutoModelForTextEncoding` has a class.

    Breaks when `MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES` is renamed.
    """
    return name in modeling_auto.MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES.values()


def processor_class(config: PreTrainedConfig) -> type[ProcessorMixin] | None:
    """Return the processor class of a model type, None if it has none.

    Breaks when `PROCESSOR_MAPPING` is renamed.
    """
    return PROCESSOR_MAPPING.get(type(config), None)


def tokenizer_class(name: str | None, model_type: str) -> Any:
    """Return a tokenizer class by its name, or else of a model type; None if there is none.

    Breaks when `TOKENIZER_MAPPING_NAMES` has no names of classes any more.
    """
    name = name or TOKENIZER_MAPPING_NAMES.get(model_type)
    return tokenizer_class_from_name(name) if isinstance(name, str) else None
