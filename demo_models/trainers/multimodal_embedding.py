"""The small CLIP of zero-shot image classification, whose vectors find images by descriptions."""

from __future__ import annotations

from typing import Any

from hf_serve.demo_models.synthetic_images import as_base64, drawn_scenes
from hf_serve.demo_models.trainers.zero_shot_image_classification import ZeroShotImageClassification


class MultimodalEmbedding(ZeroShotImageClassification):
    """Images of shapes and their descriptions get similar vectors."""

    def calibration_inputs(self, rows: int, seed: int) -> list[Any]:
        """Draw images, and describe each."""
        scenes = drawn_scenes(rows // 2, f"calibration {seed}")
        images = [{"image": as_base64(scene.image)} for scene in scenes]
        return [*images, *(f"This is a photo of {scene.label}." for scene in scenes)]


TRAINER = MultimodalEmbedding()
