"""Images of coloured shapes, which a small vision transformer learns to name.

`python -m scripts.kit.demo_models.shapes` writes the sample of image classification again.
"""

from __future__ import annotations

import base64
import json
from io import BytesIO
from random import Random

from PIL import Image, ImageDraw

from scripts.kit.places import ARTIFACTS

COLOURS = {"red": (200, 40, 40), "green": (40, 160, 60), "blue": (50, 80, 200)}
SHAPES = ("circle", "square", "triangle")
LABELS = tuple(f"{colour} {shape}" for colour in COLOURS for shape in SHAPES)
SIDE = 32
# Colours vary by as much in each channel.
SPREAD = 30
SAMPLE_SEED = 5


def draw(rng: Random) -> tuple[Image.Image, str]:
    """Return an image with one shape on a light background, and its label."""
    label = rng.choice(LABELS)
    colour, shape = label.split()
    image = Image.new("RGB", (SIDE, SIDE), _vary((225, 225, 225), rng))
    size = rng.randint(SIDE // 2, SIDE * 3 // 4)
    left, top = (rng.randint(2, SIDE - size - 2) for _ in range(2))
    box = (left, top, left + size, top + size)
    pen, fill = ImageDraw.Draw(image), _vary(COLOURS[colour], rng)
    if shape == "circle":
        pen.ellipse(box, fill)
    elif shape == "square":
        pen.rectangle(box, fill)
    else:
        pen.polygon([(left, top + size), (left + size, top + size), (left + size // 2, top)], fill)
    return image, label


def as_png(image: Image.Image) -> bytes:
    """Return the bytes of an image file."""
    stream = BytesIO()
    image.save(stream, "PNG", optimize=True)
    return stream.getvalue()


def as_base64(image: Image.Image) -> str:
    """Return an image file in base64."""
    return base64.b64encode(as_png(image)).decode()


def write_sample() -> None:
    """Write the image of the sample and the request with it."""
    folder = ARTIFACTS / "image_classification"
    image, _ = draw(Random(SAMPLE_SEED))
    folder.mkdir(exist_ok=True)
    (folder / "sample.png").write_bytes(as_png(image))
    body = json.dumps({"inputs": as_base64(image)})
    (folder / "sample.json").write_text(f"{body}\n", encoding="utf-8")


def _vary(colour: tuple[int, int, int], rng: Random) -> tuple[int, int, int]:
    red, green, blue = (min(255, max(0, each + rng.randint(-SPREAD, SPREAD))) for each in colour)
    return red, green, blue


if __name__ == "__main__":
    write_sample()
