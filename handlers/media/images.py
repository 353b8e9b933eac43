"""Images of requests: JPEG, PNG, WebP and GIF files, decoded by Pillow within limits.

Pillow reads the size of an image from the header of its file. It is checked before the pixels are
decoded, of which a few kilobytes can have billions. Parts of a file that take long to decode,
however few bytes they have, are counted before Pillow sees it. Of an animation only the first frame
is decoded.
"""

from __future__ import annotations

import base64
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from ..compat.device_errors import is_out_of_memory
from ..errors import BadRequest, DeadlineExceeded, RequestTooLarge, Unprocessable
from .files import MediaType

# No other readers of Pillow get to see a file: some of them start programs or read vector graphics.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF")
# A processor that scales the shorter side to a size multiplies the longer one as much.
MAX_ASPECT_RATIO = 50
# A JPEG image is computed again for each scan, of which usual files have up to 10. Segments of
# EXIF are copied for each further one, and compressed texts of PNG unpack to 1 MB each.
MAX_PARTS = 50
JPEG, PNG = b"\xff\xd8", b"\x89PNG"
SCAN, EXIF = b"\xff\xda", b"Exif\0\0"
COMPRESSED = (b"zTXt", b"iTXt", b"iCCP")
# In compressed data a zero follows 0xFF, or the number of a restart.
JPEG_MARKER = re.compile(rb"\xff([^\x00\xd0-\xd7\xff])")
END_OF_JPEG = b"\xd9"
# Modes of Pillow with more than eight bits for each pixel of a grey image.
SIXTEEN_BITS = re.compile(r"I(;16.*)?")
# The types of files that are written, and Pillow's names for them.
IMAGE_TYPES = {"image/png": "PNG", "image/jpeg": "JPEG", "image/webp": "WEBP"}
EXPECTED = "send the bytes of a JPEG, PNG, WebP or GIF file, or these in base64"
PYTESSERACT, PROGRAM = "pytesseract", "tesseract"
OCR_SECONDS = 30
# Boxes count thousandths of the page's width and height.
SCALE = 1000
IMAGE = MediaType("an image", "image", EXPECTED)


def read_image(file: bytes, name: str, max_pixels: int) -> Image.Image:
    """Return the image in a file, upright and in RGB.

    Transparency is ignored, as transformers' pipelines do.

    Raises:
        BadRequest: the file is broken, or is in another format.
        RequestTooLarge: the image has more pixels, or takes too long to decode.
        Unprocessable: it is too narrow.
    """
    _check_parts(file, name)
    try:
        with Image.open(BytesIO(file), formats=FORMATS) as image:
            _check_size(image.size, name, max_pixels)
            image.load()
            _turn_upright(image)
            return _to_rgb(image)
    except (BadRequest, RequestTooLarge, Unprocessable):
        raise
    except Image.DecompressionBombError:
        raise RequestTooLarge(
            f"{name} has more pixels than the {max_pixels:,} that this model takes; send a smaller"
            " image."
        ) from None
    except Exception as error:  # each reader of Pillow has its own error types
        if is_out_of_memory(error):
            raise
        raise BadRequest(f"{name} is no image that can be read; {EXPECTED}.") from None


def png_in_base64(image: Image.Image) -> str:
    """Return an image as a PNG file in base64."""
    stream = BytesIO()
    image.save(stream, "PNG")
    return base64.b64encode(stream.getvalue()).decode("ascii")


def convert_png(text: str, content_type: str, quality: int | None = None) -> bytes:
    """Return a PNG file in base64 as a file of one of `IMAGE_TYPES`.

    Args:
        quality: the quality of a JPEG or WebP file, from 0 to 100; by default Pillow's.
    """
    file = base64.b64decode(text)
    if content_type == "image/png":
        return file
    stream = BytesIO()
    options = {} if quality is None else {"quality": quality}
    with Image.open(BytesIO(file), formats=("PNG",)) as image:
        image.save(stream, IMAGE_TYPES[content_type], **options)
    return stream.getvalue()


def _check_size(size: tuple[int, int], name: str, max_pixels: int) -> None:
    width, height = size
    if width * height > max_pixels:
        raise RequestTooLarge(
            f"{name} has {width:,} x {height:,} pixels, and this model takes {max_pixels:,} in all;"
            " send a smaller image."
        )
    if max(size) > MAX_ASPECT_RATIO * min(size):
        raise Unprocessable(
            f"{name} has {width:,} x {height:,} pixels, and one side may be at most"
            f" {MAX_ASPECT_RATIO} times as long as the other; send a part of it."
        )


def _check_parts(file: bytes, name: str) -> None:
    for noun, count in _parts(file).items():
        if count > MAX_PARTS:
            raise RequestTooLarge(
                f"{name} has {count:,} {noun}, which take long to decode, and {MAX_PARTS} are"
                " allowed; save the image again without them."
            )


def _parts(file: bytes) -> dict[str, int]:
    if file.startswith(JPEG):
        return {"scans": _scans(file), "segments of EXIF": file.count(EXIF)}
    if file.startswith(PNG):
        return {"compressed texts or profiles": sum(map(file.count, COMPRESSED))}
    return {}


def _scans(file: bytes) -> int:
    """Return how many scans a JPEG file has.

    Other data, such as a film after the end of the image, may have their marker by chance.
    """
    count = file.count(SCAN)
    if count <= MAX_PARTS:
        return count
    count, place = 0, len(JPEG)
    while (marker := JPEG_MARKER.search(file, place)) and marker[1] != END_OF_JPEG:
        count += marker[0] == SCAN
        place = marker.end() + int.from_bytes(file[marker.end() : marker.end() + 2], "big")
    return count


def _turn_upright(image: Image.Image) -> None:
    """Turn an image as its EXIF says; one whose EXIF is malformed stays as it is."""
    try:
        ImageOps.exif_transpose(image, in_place=True)
    except Exception as error:  # readers of EXIF have many error types
        if is_out_of_memory(error):
            raise


def _to_rgb(image: Image.Image) -> Image.Image:
    if SIXTEEN_BITS.fullmatch(image.mode):
        # Pillow would cut all values above 255.
        image = Image.fromarray((np.asarray(image) // 257).clip(0, 255).astype(np.uint8))
    return image if image.mode == "RGB" else image.convert("RGB")


@dataclass(frozen=True)
class WordBoxes:
    """Words, and the box of each: left, top, right and bottom from 0 to 1000."""

    words: Sequence[str]
    boxes: Sequence[Sequence[int]]


def read_words(image: Image.Image, language: str | None) -> WordBoxes:
    """Return the words of an image, as transformers' pipeline reads them.

    Args:
        language: Tesseract's name of the language; by default English.

    Raises:
        Unprocessable: Tesseract is not installed, lacks the language, or finds no words.
        DeadlineExceeded: it takes too long.
    """
    if find_spec(PYTESSERACT) is None or shutil.which(PROGRAM) is None:
        raise Unprocessable(
            "This model reads words with their boxes, and the server has no Tesseract to find them"
            " in an image; send word_boxes, or install tesseract-ocr and pytesseract there."
        )
    tesseract: Any = import_module(PYTESSERACT)
    try:
        found = tesseract.image_to_data(
            image, lang=language, config="", output_type="dict", timeout=OCR_SECONDS
        )
    except tesseract.TesseractError:
        raise Unprocessable(
            "Tesseract cannot read the image; send word_boxes, or as lang a language that is"
            " installed on the server."
        ) from None
    except RuntimeError:  # pytesseract has no class for a timeout.
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
