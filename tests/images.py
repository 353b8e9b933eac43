"""Images of several shapes for the tests of modes for images."""

from __future__ import annotations

import base64
from random import Random
from typing import Any

from hf_serve.demo_models.synthetic_images import as_png, draw
from hf_serve.handlers.http.request import HttpRequest

RNG = Random(3)
IMAGES = [draw(RNG).image.resize(size) for size in ((48, 48), (100, 40), (40, 77), (32, 32))]
FILES = [as_png(each) for each in IMAGES]
TEXTS = [base64.b64encode(each).decode() for each in FILES]
BROKEN = FILES[0][:70]


def raw(file: bytes, content_type: str = "", **headers: str) -> HttpRequest:
    """Return a file as the body of a request, as TorchServe passes it."""
    described: Any = {"content-type": content_type} if content_type else {}
    return HttpRequest({"body": bytearray(file)}, {"body": described, **headers})
