"""Image classification: the forms of a request, and batches by shape."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from hf_serve.handlers.engine import Engine
from hf_serve.handlers.http.request import HttpRequest
from hf_serve.handlers.types.request import Request
from tests import tiny
from tests.images import FILES, IMAGES, TEXTS, raw
from tests.serving import Served, differences

MODE = "image_classification"


@pytest.fixture
def model(served: Callable[..., Served]) -> Served:
    return served(MODE)


def test_a_form_may_have_the_file_and_parameters(model: Served) -> None:
    for name in ("data", "image", "inputs"):
        row = {name: bytearray(FILES[0]), "parameters": bytearray(b'{"top_k": 1}')}
        ((status, answer),) = model.post(HttpRequest(row, {}))
        assert (status, len(answer)) == (200, 1), answer


def test_a_tensor_may_have_the_bytes_of_files(model: Served) -> None:
    data = b"".join(struct.pack("<I", len(file)) + file for file in FILES)
    given = {
        "name": "image",
        "datatype": "BYTES",
        "shape": [len(FILES)],
        "parameters": {"binary_data_size": len(data)},
    }
    head = json.dumps({"inputs": [given]}).encode()
    headers = {
        "Inference-Header-Content-Length": str(len(head)),
        "url_path": "v2/models/model/infer",
    }
    ((status, answer),) = model.post(raw(head + data, "application/octet-stream", **headers))
    assert status == 200, answer
    found = [json.loads(each) for each in answer["outputs"][0]["data"]]
    assert not differences(found, model.ask(TEXTS), 1e-5)


def test_images_of_other_sizes_run_in_batches_of_equal_shapes(tmp_path: Path) -> None:
    """A processor that keeps the size of an image gives rows of several shapes."""
    folder = tiny.write(tmp_path / "model", MODE)
    engine: Engine = Served(folder, MODE, max_batch_pixels=3 * 32 * 32).engine
    shapes: list[tuple[int, ...]] = []
    original = engine.model.forward

    def counted(batch: Any) -> Any:
        shapes.append(tuple(batch["pixel_values"].shape))
        return original(batch)

    engine.model.forward = counted  # type: ignore[method-assign]
    engine.predict([Request(text) for text in [*TEXTS, TEXTS[0]]])
    assert shapes == [(3, 3, 32, 32), (2, 3, 32, 32)]


def test_a_jpeg_is_read_as_the_pipeline_reads_it(model: Served) -> None:
    stream = BytesIO()
    IMAGES[1].save(stream, "JPEG", quality=60)
    ((status, answer),) = model.post(raw(stream.getvalue(), "image/jpeg"))
    assert status == 200
    assert {each["label"] for each in answer} == {"circle", "square", "triangle"}
