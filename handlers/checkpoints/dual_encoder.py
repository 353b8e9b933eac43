"""Dual encoders: models such as CLIP, whose two towers make vectors of texts and of images."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from ..errors import WrongCheckpoint
from .sentence_transformers import MODULES, module_kinds

OUTPUT = "embedding"
# The families whose vectors of texts and of images are compared with each other, by model type.
FAMILIES = ("align", "altclip", "chinese_clip", "clip", "metaclip_2", "siglip", "siglip2")
# The first of the modules of sentence-transformers; versions before 5.4 have the second one.
FIRST = ("Transformer", "CLIPModel")
# The families that score each label by itself, and read texts of a fixed length.
SIGMOID_FAMILIES = ("siglip", "siglip2")


def check_family(config: PreTrainedConfig) -> None:
    """Check that a config is one of a dual encoder.

    Raises:
        WrongCheckpoint: it is one of another model.
    """
    if config.model_type not in FAMILIES:
        raise WrongCheckpoint(
            "config.json",
            f"is of a {config.model_type} model, whose vectors of texts and of images are not"
            " compared with each other",
            f"use a checkpoint of one of {', '.join(FAMILIES)}",
        )


def normalizes(directory: Path) -> bool:
    """Return whether the modules of sentence-transformers give vectors a length of 1.

    Raises:
        WrongCheckpoint: the file is damaged, or there are further modules.
    """
    first, *others = module_kinds(directory) or FIRST[:1]
    if first not in FIRST or others not in ([], ["Normalize"]):
        raise WrongCheckpoint(
            MODULES,
            f"has the modules {', '.join([first, *others]):.120}, and this mode supports a"
            " Transformer or a CLIPModel, and a Normalize",
            "use a checkpoint without the others",
        )
    return bool(others)


def reads_lower_case(tokenizer: PreTrainedTokenizerBase, config: PreTrainedConfig) -> bool:
    """Return whether the model of a tokenizer is trained with texts in lower case alone.

    SigLIP 2 is. Its published tokenizer is Gemma's, which keeps capitals whatever its config says;
    transformers has a class that does not keep them, and the checkpoints do not name it.
    """
    keeps_capitals = tokenizer.init_kwargs.get("do_lower_case") is False
    return config.model_type in SIGMOID_FAMILIES and not keeps_capitals and tokenizer.is_fast


def dimension_of(config: PreTrainedConfig) -> int:
    """Return the size of the vectors."""
    vision: Any = getattr(config, "vision_config", config)
    return int(getattr(config, "projection_dim", None) or vision.hidden_size)


class DualEncoder(PreTrainedModel):
    """A model of texts and images as a function of one of them to its vector, in float32."""

    # The model has chosen its attention; this class must only not refuse it.
    _supports_sdpa = _supports_flash_attn = _supports_flex_attn = True
    _supports_attention_backend = True

    def __init__(self, module: PreTrainedModel) -> None:
        super().__init__(module.config)
        self.module: Any = module

    @property
    def base_model(self) -> torch.nn.Module:
        module: torch.nn.Module = self.module.base_model
        return module

    def get_input_embeddings(self) -> torch.nn.Module:
        """Return the layer with the vectors of the tokens of texts."""
        # Not all families name theirs for transformers; it is the first one in each of them.
        layers = self.module.text_model.modules()
        return next(each for each in layers if isinstance(each, torch.nn.Embedding))

    def forward(
        self, pixel_values: torch.Tensor | None = None, **inputs: torch.Tensor
    ) -> Mapping[str, torch.Tensor]:
        """Return the vectors of texts, or of images where there are pixels.

        Returns:
            A tensor of shape (texts or images, size).
        """
        if pixel_values is None:
            found = self.module.get_text_features(**inputs)
        else:
            found = self.module.get_image_features(pixel_values=pixel_values, **inputs)
        return {OUTPUT: found.pooler_output.float()}
