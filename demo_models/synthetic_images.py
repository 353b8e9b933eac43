"""Images of coloured shapes, which small vision models learn to name and to find.

`python -m hf_serve.demo_models.synthetic_images` writes the samples of the modes for images again.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from io import BytesIO
from random import Random
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw

from hf_serve.demo_models.training import Feature
from hf_serve.scripts.paths import ARTIFACTS

COLOURS = {"red": (200, 40, 40), "green": (40, 160, 60), "blue": (50, 80, 200)}
SHAPES = ("circle", "square", "triangle")
LABELS = tuple(f"{colour} {shape}" for colour in COLOURS for shape in SHAPES)
SIDE = 32
# Colours vary by as much in each channel.
SPREAD = 30
FOG = 235
# In metres; the fog hides what is further away.
NEAREST, FURTHEST = 1.0, 9.0
SAMPLE_SEED = 5
SAMPLES = (
    "image_classification",
    "image_feature_extraction",
    "image_segmentation",
    "image_to_text",
    "mask_generation",
    "object_detection",
)
# As many as measure an export; each is a file of some hundred bytes.
CALIBRATION_ROWS = 200


@dataclass(frozen=True)
class Scene:
    """An image with one shape.

    Attributes:
        image: the image.
        label: the colour and the shape.
        box: the corners of the shape in pixels: left, top, right, bottom.
    """

    image: Image.Image
    label: str
    box: tuple[int, int, int, int]


def draw(rng: Random) -> Scene:
    """Return an image with one shape on a light background."""
    label = rng.choice(LABELS)
    colour, shape = label.split()
    image = Image.new("RGB", (SIDE, SIDE), _vary((225, 225, 225), rng))
    size = rng.randint(SIDE // 2, SIDE * 3 // 4)
    left, top = (rng.randint(2, SIDE - size - 2) for _ in range(2))
    box = (left, top, left + size, top + size)
    draw_shape(image, shape, box, _vary(COLOURS[colour], rng))
    return Scene(image, label, box)


def draw_shape(
    image: Image.Image, shape: str, box: tuple[int, int, int, int], fill: tuple[int, int, int]
) -> None:
    """Draw a circle, a square or a triangle that fills a box."""
    pen = ImageDraw.Draw(image)
    if shape == "circle":
        pen.ellipse(box, fill)
    elif shape == "square":
        pen.rectangle(box, fill)
    else:
        left, top, right, bottom = box
        pen.polygon([(left, bottom), (right, bottom), ((left + right) // 2, top)], fill)


def draw_in_fog(rng: Random) -> tuple[Image.Image, np.ndarray[Any, Any]]:
    """Return an image of two shapes in the fog, and the depth of each pixel in metres."""
    image = Image.new("RGB", (SIDE, SIDE), (FOG, FOG, FOG))
    near, far = sorted(rng.uniform(NEAREST, FURTHEST) for _ in range(2))
    depth = np.full((SIDE, SIDE), FURTHEST, dtype=np.float32)
    for metres in (far, near):
        size = round(SIDE / 2 * (1.2 - metres / (2 * FURTHEST)))
        left, top = (rng.randint(0, SIDE - size - 1) for _ in range(2))
        box, shape = (left, top, left + size, top + size), rng.choice(SHAPES)
        grey = round(30 + (FOG - 30) * metres / FURTHEST)
        draw_shape(image, shape, box, (grey, grey, grey))
        depth[drawn_pixels(shape, box)] = metres
    return image, depth


def drawn_features(processor: Any, count: int, seed: str) -> list[Feature]:
    """Return images as an image processor reads them, with the numbers of their labels."""
    rng = Random(seed)
    scenes = [draw(rng) for _ in range(count)]
    pixels = processor(images=[each.image for each in scenes], return_tensors="np")["pixel_values"]
    return [
        {"pixel_values": torch.from_numpy(each), "labels": LABELS.index(scene.label)}
        for each, scene in zip(pixels, scenes, strict=True)
    ]


def drawn_scenes(rows: int, seed: str) -> list[Scene]:
    """Return images for a calibration file."""
    rng = Random(seed)
    return [draw(rng) for _ in range(min(rows, CALIBRATION_ROWS))]


def drawn_inputs(rows: int, seed: int) -> list[str]:
    """Return images in base64, for a calibration file."""
    return [as_base64(scene.image) for scene in drawn_scenes(rows, f"calibration {seed}")]


def pixels_of(scene: Scene) -> np.ndarray[Any, Any]:
    """Return whether each pixel of an image is of its shape. Shape: (height, width)."""
    return drawn_pixels(scene.label.split()[1], scene.box)


def drawn_pixels(shape: str, box: tuple[int, int, int, int]) -> np.ndarray[Any, Any]:
    """Return whether each pixel of an image is of a shape. Shape: (height, width)."""
    mask = Image.new("RGB", (SIDE, SIDE))
    draw_shape(mask, shape, box, (255, 255, 255))
    return np.asarray(np.asarray(mask)[:, :, 0] > 0)


def as_png(image: Image.Image) -> bytes:
    """Return the bytes of an image file."""
    stream = BytesIO()
    image.save(stream, "PNG", optimize=True)
    return stream.getvalue()


def as_base64(image: Image.Image) -> str:
    """Return an image file in base64."""
    return base64.b64encode(as_png(image)).decode()


def write_sample(mode: str, image: Image.Image, *, as_object: bool = False, **more: Any) -> None:
    """Write the image of a mode's sample, and the request with it and further inputs."""
    folder = ARTIFACTS / mode
    folder.mkdir(exist_ok=True)
    (folder / "sample.png").write_bytes(as_png(image))
    inputs = as_base64(image)
    body = json.dumps({"inputs": {"image": inputs, **more} if more or as_object else inputs})
    (folder / "sample.json").write_text(f"{body}\n", encoding="utf-8")


def _vary(colour: tuple[int, int, int], rng: Random) -> tuple[int, int, int]:
    red, green, blue = (min(255, max(0, each + rng.randint(-SPREAD, SPREAD))) for each in colour)
    return red, green, blue


if __name__ == "__main__":
    for each in SAMPLES:
        write_sample(each, draw(Random(SAMPLE_SEED)).image)
    labelled = draw(Random(SAMPLE_SEED)).image
    write_sample("zero_shot_image_classification", labelled, candidate_labels=list(LABELS))
    write_sample("zero_shot_object_detection", labelled, candidate_labels=list(LABELS))
    write_sample("multimodal_embedding", labelled, as_object=True)
    write_sample("depth_estimation", draw_in_fog(Random(SAMPLE_SEED))[0])
    write_sample("image_text_to_text", draw(Random(SAMPLE_SEED)).image, text="What is it?")
    write_sample(
        "visual_question_answering", draw(Random(SAMPLE_SEED)).image, question="What colour is it?"
    )
