"""Image files of requests: what is read, and what is refused before it is decoded."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Callable
from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image
from transformers.image_utils import load_image

from hf_serve.handlers.errors import BadRequest, RequestError, RequestTooLarge, Unprocessable
from hf_serve.handlers.media.images import read_image
from tests.sentences import refused

LIMIT = 100_000
HALVES = np.zeros((8, 12, 3), dtype=np.uint8)
HALVES[:, :6] = (250, 0, 0)
HALVES[:, 6:] = (0, 0, 250)
SCAN = b"\xff\xda"
# Bytes of a PNG file before its first chunk after the header.
HEADER = 33


def file_of(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    stream = BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def pixels_of(file: bytes) -> Any:
    return np.asarray(read_image(file, "inputs", LIMIT)).astype(int)


def chunk(name: bytes, body: bytes) -> bytes:
    """Return a part of a PNG file."""
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def png_header(width: int, height: int, bits: int = 8) -> bytes:
    """Return a PNG file that claims to have a size, with the pixels of none."""
    header = struct.pack(">IIBBBBB", width, height, bits, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(b"\0" * 1000)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*each) for each in chunks)


def progressive_jpeg(scans: int) -> bytes:
    """Return a JPEG file whose last scan is repeated: each takes as long as a whole image."""
    file = file_of(Image.new("L", (64, 64), 128), "JPEG", progressive=True)
    last = file[file.rindex(SCAN) : -2]
    return file[:-2] + last * (scans - file.count(SCAN)) + file[-2:]


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


@pytest.mark.parametrize("orientation", range(1, 9))
def test_an_image_is_upright_as_transformers_reads_it(orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = file_of(Image.fromarray(HALVES), "PNG", exif=exif)
    expected = np.asarray(load_image(base64.b64encode(file).decode()).convert("RGB"))
    assert (pixels_of(file) == expected).all()


@pytest.mark.parametrize("exif", [b"", b"no TIFF", b"II*\0\xff\xff\xff\xff"])
def test_an_image_with_malformed_exif_stays_as_it_is(exif: bytes) -> None:
    whole = file_of(Image.fromarray(HALVES))
    assert (pixels_of(whole[:HEADER] + chunk(b"eXIf", exif) + whole[HEADER:]) == HALVES).all()


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
    with refused(error, "pixels"):
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
    with refused(BadRequest, "inputs"):
        read_image(file, "inputs", LIMIT)


def after_start(part: bytes, count: int) -> bytes:
    """Return a JPEG file with a segment several times."""
    file = file_of(Image.fromarray(HALVES), "JPEG")
    return file[:2] + part * count + file[2:]


def after_header(part: bytes, count: int) -> bytes:
    """Return a PNG file with a chunk several times."""
    file = file_of(Image.fromarray(HALVES))
    return file[:HEADER] + part * count + file[HEADER:]


BOMB = b"\0\0" + zlib.compress(bytes(900_000))


@pytest.mark.parametrize(
    ("make", "noun"),
    [
        (progressive_jpeg, "scans"),
        (lambda count: after_start(b"\xff\xe1\0\x09Exif\0\0a", count), "segments of EXIF"),
        (lambda count: after_header(chunk(b"zTXt", BOMB), count), "compressed texts or profiles"),
        (lambda count: after_header(chunk(b"iCCP", b"a" + BOMB), count), "compressed texts or"),
    ],
)
def test_parts_that_take_long_to_decode_are_counted_before(
    make: Callable[[int], bytes], noun: str
) -> None:
    assert read_image(make(50), "inputs", LIMIT).mode == "RGB"
    with refused(RequestTooLarge, "inputs", 51, noun):
        read_image(make(51), "inputs", LIMIT)


def test_data_after_the_end_of_an_image_has_no_scans() -> None:
    file = file_of(Image.fromarray(HALVES), "JPEG")
    assert (pixels_of(file + SCAN * 100) == pixels_of(file)).all()
