"""The words of a page and their boxes, read by Tesseract where it is installed."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from PIL import Image

from handlers.errors import DeadlineExceeded, Unprocessable

PACKAGE, PROGRAM = "pytesseract", "tesseract"
SECONDS = 30
# Boxes count thousandths of the page's width and height.
SCALE = 1000


@dataclass(frozen=True)
class WordBoxes:
    """Words, and the box of each: left, top, right and bottom from 0 to 1000."""

    words: Sequence[str]
    boxes: Sequence[Sequence[int]]


def read_words(image: Image.Image, language: str | None) -> WordBoxes:
    """Return the words of an image, as transformers' pipeline reads them.

    Args:
        image: the image.
        language: Tesseract's name of the language; by default English.

    Raises:
        Unprocessable: Tesseract is not installed, lacks the language, or finds no words.
        DeadlineExceeded: it takes too long.
    """
    if find_spec(PACKAGE) is None or shutil.which(PROGRAM) is None:
        raise Unprocessable(
            "This model reads words with their boxes, and the server has no Tesseract to find them"
            " in an image; send word_boxes, or install tesseract-ocr and pytesseract there."
        )
    tesseract: Any = import_module(PACKAGE)
    try:
        found = tesseract.image_to_data(
            image, lang=language, config="", output_type="dict", timeout=SECONDS
        )
    except tesseract.TesseractError:
        raise Unprocessable(
            "Tesseract cannot read the image; send word_boxes, or as lang a language that is"
            " installed on the server."
        ) from None
    except RuntimeError:  # pytesseract has no class of its own for a timeout.
        raise DeadlineExceeded from None
    return _normalized(found, image.width, image.height)


def _normalized(found: dict[str, list[Any]], width: int, height: int) -> WordBoxes:
    places = zip(*(found[name] for name in ("left", "top", "width", "height")), strict=True)
    words, boxes = [], []
    for word, (left, top, across, down) in zip(found["text"], places, strict=True):
        if word.strip():
            words.append(word)
            right, bottom = left + across, top + down
            corners = (left / width, top / height, right / width, bottom / height)
            boxes.append([min(SCALE, int(SCALE * corner)) for corner in corners])
    if not words:
        raise Unprocessable("Tesseract finds no words in the image; send word_boxes.")
    return WordBoxes(words, boxes)
