"""Image classification: the answers of the pipeline, the forms of a request, hostile files."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from transformers import AutoModelForImageClassification, pipeline
from transformers.models.auto.image_processing_auto import AutoImageProcessor

from handlers.engine import Engine
from handlers.http.request import HttpRequest
from handlers.schemas.request import Request
from scripts.kit.demo_models.shapes import as_png, draw
from tests import tiny
from tests.serving import Served, differences

MODE = "image_classification"
RNG = Random(3)
IMAGES = [draw(RNG).image.resize(size) for size in ((48, 48), (100, 40), (33, 77), (32, 32))]
FILES = [as_png(each) for each in IMAGES]
TEXTS = [base64.b64encode(each).decode() for each in FILES]
BROKEN = FILES[0][:70]


@pytest.fixture
def model(served: Callable[..., Served]) -> Served:
    return served(MODE)


def raw(file: bytes, content_type: str = "", **headers: str) -> HttpRequest:
    """Return a file as the body of a request, as TorchServe passes it."""
    described: Any = {"content-type": content_type} if content_type else {}
    return HttpRequest({"body": bytearray(file)}, {"body": described, **headers})


@pytest.mark.parametrize(
    "parameters", [{}, {"top_k": 2}, {"function_to_apply": "sigmoid", "top_k": 3}]
)
def test_answers_are_those_of_the_pipeline(
    checkpoint: Callable[..., Path], model: Served, parameters: dict[str, Any]
) -> None:
    folder = checkpoint(MODE)
    reference = pipeline(
        "image-classification",
        model=AutoModelForImageClassification.from_pretrained(folder),
        image_processor=AutoImageProcessor.from_pretrained(folder),
        device=torch.device("cpu"),
    )
    expected = [reference(image, **parameters) for image in IMAGES]
    alone = [model.ask(text, **parameters) for text in TEXTS]
    assert not differences(alone, expected, 1e-5)
    assert not differences(model.ask(TEXTS, **parameters), expected, 1e-5)


@pytest.mark.parametrize("content_type", ["", "image/png", "application/octet-stream", "image/*"])
def test_the_body_may_be_the_file(model: Served, content_type: str) -> None:
    ((status, answer),) = model.post(raw(FILES[1], content_type))
    assert status == 200
    assert not differences(answer, model.ask(TEXTS[1]), 1e-6)


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


def test_a_broken_file_fails_alone(model: Served) -> None:
    good = [model.ask(text) for text in TEXTS]
    bodies = [raw(FILES[0]), raw(BROKEN), raw(FILES[1]), {"inputs": "AAAA"}]
    first, broken, second, wrong = model.post(*bodies)
    assert [first[0], broken[0], second[0], wrong[0]] == [200, 400, 200, 400]
    assert not differences([first[1], second[1]], good[:2], 1e-5)
    text = base64.b64encode(BROKEN).decode()
    found = model.ask([TEXTS[2], text, TEXTS[3]])
    assert found[1]["message"].startswith("The image is no image that can be read")
    assert not differences([found[0], found[2]], good[2:], 1e-5)


def test_large_images_are_refused_with_the_limit(served: Callable[..., Served]) -> None:
    model = served(MODE, max_image_pixels=2_000, max_image_bytes=2_000)
    assert model.refuse(TEXTS[0]) == (
        413,
        "The image has 48 x 48 pixels, and this model takes 2,000 in all; send a smaller image.",
    )
    status, message = model.refuse(base64.b64encode(bytes(2_001)).decode())
    assert (status, "2,001 bytes, and this model takes 2,000" in message) == (413, True)


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


def test_a_checkpoint_without_its_image_processor_is_refused(tmp_path: Path) -> None:
    folder = tiny.write(tmp_path / "model", MODE)
    (folder / "preprocessor_config.json").unlink()
    with pytest.raises(Exception, match=r"preprocessor_config\.json: cannot be read"):
        Served(folder, MODE)


def test_a_model_of_images_has_no_tokenizer(model: Served) -> None:
    (outcome,) = model.engine.tokenize([Request("a text")])
    assert str(outcome) == "This model's mode is image_classification; it has no tokenizer."
