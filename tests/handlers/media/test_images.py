"""Image files of requests: what is read, and what is refused before it is decoded."""

from __future__ import annotations

import struct
import zlib
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image

from handlers.errors import BadRequest, RequestError, RequestTooLarge, Unprocessable
from handlers.media.images import read_image

LIMIT = 100_000
HALVES = np.zeros((8, 12, 3), dtype=np.uint8)
HALVES[:, :6] = (250, 0, 0)
HALVES[:, 6:] = (0, 0, 250)


def file_of(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    stream = BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def pixels_of(file: bytes) -> Any:
    return np.asarray(read_image(file, "inputs", LIMIT)).astype(int)


def png_header(width: int, height: int, bits: int = 8) -> bytes:
    """Return a PNG file that claims to have a size, with the pixels of none."""
    header = struct.pack(">IIBBBBB", width, height, bits, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(b"\0" * 1000)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in chunks
    )


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF"])
def test_each_format_is_read_in_rgb(kind: str) -> None:
    options = {"lossless": True} if kind == "WEBP" else {}
    found = pixels_of(file_of(Image.fromarray(HALVES), kind, **options))
    assert found.shape == HALVES.shape
    assert np.abs(found[:, :4] - HALVES[:, :4]).max() <= 30


def test_an_animation_is_its_first_frame() -> None:
    first, second = (Image.new("RGB", (4, 4), colour) for colour in ("white", "black"))
    file = file_of(first, "GIF", save_all=True, append_images=[second])
    assert (pixels_of(file) == 255).all()


def test_an_image_is_upright() -> None:
    exif = Image.Exif()
    exif[0x0112] = 3  # upside down
    turned = pixels_of(file_of(Image.fromarray(HALVES), "PNG", exif=exif))
    assert (turned == HALVES[::-1, ::-1]).all()


@pytest.mark.parametrize("mode", ["RGBA", "P", "L", "LA", "1", "CMYK"])
def test_each_mode_becomes_rgb(mode: str) -> None:
    image = Image.fromarray(HALVES).convert(mode)
    kind = "JPEG" if mode == "CMYK" else "PNG"
    assert pixels_of(file_of(image, kind)).shape == HALVES.shape


def test_sixteen_bits_become_eight() -> None:
    grey = np.array([[0, 257, 128 * 257, 65535]], dtype=np.uint16)
    assert pixels_of(file_of(Image.fromarray(grey)))[0, :, 0].tolist() == [0, 1, 128, 255]


@pytest.mark.parametrize(
    ("size", "error"),
    [
        ((100_000, 100_000), RequestTooLarge),
        ((2**31 - 1, 2**31 - 1), RequestTooLarge),
        ((400, 251), RequestTooLarge),
        ((1, 100_000), Unprocessable),
        ((51, 1), Unprocessable),
    ],
)
def test_a_size_is_refused_before_pixels_are_decoded(
    size: tuple[int, int], error: type[RequestError]
) -> None:
    with pytest.raises(error, match="pixels"):
        read_image(png_header(*size), "inputs", LIMIT)


@pytest.mark.parametrize(
    "file",
    [
        file_of(Image.fromarray(HALVES), "PNG")[:60],
        file_of(Image.fromarray(HALVES), "JPEG")[:-40],
        file_of(Image.fromarray(HALVES), "BMP"),
        file_of(Image.fromarray(HALVES), "TIFF"),
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        b"%!PS-Adobe-3.0 EPSF-3.0",
        b"GIF89a",
        png_header(300, 300),
        png_header(0, 5),
    ],
)
def test_a_broken_file_or_another_format_is_refused(file: bytes) -> None:
    with pytest.raises(BadRequest, match="inputs is no image that can be read; send"):
        read_image(file, "inputs", LIMIT)
