"""Image processors of Pillow that transformers has, or could have, and does not find.

Without torchvision, :class:`AutoImageProcessor` reads images with Pillow. Of SegFormer its class
declares that it needs torchvision, which it uses for the maps of training alone. Of BLIP it has no
class.
"""

from __future__ import annotations

from transformers import BlipConfig, SegformerConfig
from transformers.image_processing_backends import PilBackend
from transformers.image_utils import OPENAI_CLIP_MEAN, OPENAI_CLIP_STD, PILImageResampling
from transformers.models.auto.image_processing_auto import AutoImageProcessor
from transformers.models.segformer.image_processing_pil_segformer import SegformerImageProcessorPil


class BlipImageProcessorPil(PilBackend):
    """The image processor of BLIP: a square, scaled and normalized as for CLIP."""

    resample = PILImageResampling.BICUBIC
    image_mean = OPENAI_CLIP_MEAN
    image_std = OPENAI_CLIP_STD
    size = {"height": 384, "width": 384}
    default_to_square = True
    do_resize = True
    do_rescale = True
    do_normalize = True
    do_convert_rgb = True


def register_pillow_processors() -> None:
    """Have :class:`AutoImageProcessor` find these."""
    for config, processor in (
        (SegformerConfig, SegformerImageProcessorPil),
        (BlipConfig, BlipImageProcessorPil),
    ):
        found = {"pil": processor}
        AutoImageProcessor.register(config, image_processor_classes=found, exist_ok=True)
