"""Images of requests: JPEG, PNG, WebP and GIF files, decoded by Pillow within limits.

Pillow reads the size of an image from the header of its file. It is checked before the pixels are
decoded, of which a few kilobytes can have billions. Of an animation only the first frame is
decoded.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image, ImageOps

from handlers.errors import BadRequest, RequestTooLarge, Unprocessable, is_out_of_memory

# No other readers of Pillow get to see a file: some of them start programs or read vector graphics.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF")
# A processor that scales the shorter side to a size multiplies the longer one as much.
MAX_ASPECT_RATIO = 50
# Modes of Pillow with more than eight bits for each pixel of a grey image.
SIXTEEN_BITS = re.compile(r"I(;16.*)?")
REMOTE = re.compile(r"(?i)[a-z][a-z0-9+.-]*://")
DATA_URI = re.compile(r"(?i)data:(?P<type>[^,;]{0,100})(?P<options>(;[^,;]{0,100}){0,5}),")
SPACES = re.compile(r"[ \t\r\n]+")
EXPECTED = "send the bytes of a JPEG, PNG, WebP or GIF file, or these in base64"


def image_bytes(value: Any, name: str, max_bytes: int) -> bytes:
    """Return the bytes of an image file in a request.

    Args:
        value: bytes, or a text with them in base64 or in a data URI, or `{"image": …}` or
            `{"b64": …}` with one of these.
        name: its name in an error.
        max_bytes: the maximum number of bytes.

    Raises:
        BadRequest: it is something else, empty, or not in base64.
        RequestTooLarge: it has more bytes.
        Unprocessable: it is a URL.
    """
    if isinstance(value, Mapping) and len(value) == 1 and value.keys() <= {"image", "b64"}:
        ((name, value),) = value.items()
    if isinstance(value, str):
        # Four characters of base64 are three bytes; spaces may be between them.
        _check_bytes(len(value) * 3 // 8, name, max_bytes)
        value = _from_text(value, name)
    if not isinstance(value, (bytes, bytearray)):
        raise BadRequest(f"{name} must be an image; {EXPECTED}.")
    if not value:
        raise BadRequest(f"{name} is empty; {EXPECTED}.")
    _check_bytes(len(value), name, max_bytes)
    return bytes(value)


def read_image(file: bytes, name: str, max_pixels: int) -> Image.Image:
    """Return the image in a file, upright and in RGB.

    Transparency is ignored, as transformers' pipelines do.

    Args:
        file: the bytes of the file.
        name: its name in an error.
        max_pixels: the maximum number of pixels.

    Raises:
        BadRequest: the file is broken, or is in another format.
        RequestTooLarge: the image has more pixels.
        Unprocessable: it is too narrow.
    """
    try:
        with Image.open(BytesIO(file), formats=FORMATS) as image:
            _check_size(image.size, name, max_pixels)
            image.load()
            return _to_rgb(ImageOps.exif_transpose(image))
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


def _check_bytes(count: int, name: str, max_bytes: int) -> None:
    if count > max_bytes:
        raise RequestTooLarge(
            f"{name} has {count:,} bytes, and this model takes {max_bytes:,} an image; send a"
            " smaller one."
        )


def _from_text(text: str, name: str) -> bytes:
    """Return the bytes that a text has in base64."""
    if REMOTE.match(text):
        raise Unprocessable(f"{name} is a URL, and no URLs are fetched; {EXPECTED}.")
    uri = DATA_URI.match(text)
    if uri and not uri["options"].lower().endswith(";base64"):
        raise BadRequest(f"{name} is a data URI without base64; {EXPECTED}.")
    content = SPACES.sub("", text[uri.end() :] if uri else text)
    try:
        return base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError):
        raise BadRequest(f"{name} is not in base64; {EXPECTED}.") from None


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


def _to_rgb(image: Image.Image) -> Image.Image:
    if SIXTEEN_BITS.fullmatch(image.mode):
        # Pillow would cut all values above 255.
        image = Image.fromarray((np.asarray(image) // 257).clip(0, 255).astype(np.uint8))
    return image.convert("RGB")
