"""A small YOLOS learns to find a coloured shape."""

from __future__ import annotations

from random import Random
from typing import Any

import torch
from transformers import YolosConfig, YolosForObjectDetection, YolosImageProcessorPil

from hf_serve.demo_models.evaluation import mean
from hf_serve.demo_models.synthetic_images import LABELS, SIDE, Scene, draw
from hf_serve.demo_models.trainers.base import ImageTrainer
from hf_serve.demo_models.trainers.image_classification import CONFIG
from hf_serve.demo_models.training import Feature, Plan, forward

# Objects that overlap by half are found, as in the measures of Pascal VOC.
OVERLAP = 0.5


class ObjectDetection(ImageTrainer):
    """One shape in one colour, and its box."""

    plan = Plan(rows=24_000, batch=16, rate=7e-4)
    evaluation_rows = 300

    def start(self, seed: int) -> tuple[Any, Any]:
        """Return a YOLOS with random weights, and its image processor."""
        names = dict(enumerate(LABELS))
        sizes = {**CONFIG, "image_size": [SIDE, SIDE], "patch_size": 8}
        # An image has one shape. A second token makes training several times as long.
        config = YolosConfig(**sizes, num_detection_tokens=1, id2label=names)
        size = {"shortest_edge": SIDE, "longest_edge": 2 * SIDE}
        return YolosForObjectDetection(config), YolosImageProcessorPil(size=size)

    def rows(self, processor: Any, count: int, seed: str) -> list[Feature]:
        """Draw images with their labels and boxes."""
        return [_feature(processor, scene) for scene in _drawn(count, seed)]

    def evaluate(self, model: Any, tokenizer: Any, rows: int, seed: int) -> dict[str, float]:
        """Return the share of images whose best box fits the shape, with the right label."""
        scenes = _drawn(rows, f"held out {seed}")
        found = forward(model, self.without_labels(tokenizer, rows, seed)[0])
        return {"found": mean(map(_is_found, found, scenes))}


def _drawn(count: int, seed: str) -> list[Scene]:
    rng = Random(seed)
    return [draw(rng) for _ in range(count)]


def _feature(processor: Any, scene: Scene) -> Feature:
    pixels = processor(images=scene.image, return_tensors="pt")["pixel_values"][0]
    left, top, right, bottom = (each / SIDE for each in scene.box)
    box = [(left + right) / 2, (top + bottom) / 2, right - left, bottom - top]
    label = torch.tensor([LABELS.index(scene.label)])
    return {"pixel_values": pixels, "labels": {"class_labels": label, "boxes": torch.tensor([box])}}


def _is_found(outputs: dict[str, torch.Tensor], scene: Scene) -> bool:
    scores = outputs["logits"].softmax(-1)[:, :-1]
    place, label = divmod(int(scores.argmax()), len(LABELS))
    x, y, width, height = (outputs["pred_boxes"][place] * SIDE).tolist()
    box = (x - width / 2, y - height / 2, x + width / 2, y + height / 2)
    return LABELS[label] == scene.label and _overlap(box, scene.box) >= OVERLAP


def _overlap(first: tuple[float, ...], second: tuple[float, ...]) -> float:
    """Return the share of two boxes together that they have in common."""
    width = max(0.0, min(first[2], second[2]) - max(first[0], second[0]))
    height = max(0.0, min(first[3], second[3]) - max(first[1], second[1]))
    common = width * height
    areas = sum((each[2] - each[0]) * (each[3] - each[1]) for each in (first, second))
    return common / (areas - common)


TRAINER = ObjectDetection()
