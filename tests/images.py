"""Images of several shapes for the tests of modes for images."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Sequence
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


def bytes_tensor(name: str, files: Sequence[bytes]) -> HttpRequest:
    """Return files as a tensor of the Open Inference Protocol, in its binary form."""
    data = b"".join(struct.pack("<I", len(file)) + file for file in files)
    given = {
        "name": name,
        "datatype": "BYTES",
        "shape": [len(files)],
        "parameters": {"binary_data_size": len(data)},
    }
    head = json.dumps({"inputs": [given]}).encode()
    headers = {
        "Inference-Header-Content-Length": str(len(head)),
        "url_path": "v2/models/model/infer",
    }
    return raw(head + data, "application/octet-stream", **headers)
