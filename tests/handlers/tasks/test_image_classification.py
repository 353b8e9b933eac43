"""Image classification: the forms of a request, and batches by shape."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest
import transformers
from transformers.models.imagegpt.image_processing_pil_imagegpt import ImageGPTImageProcessorPil

from hf_serve.handlers.engine import Engine
from hf_serve.handlers.errors import WrongCheckpoint
from hf_serve.handlers.http.request import HttpRequest
from hf_serve.handlers.types.request import Request
from tests import tiny
from tests.images import FILES, IMAGES, TEXTS, bytes_tensor, raw
from tests.sentences import refused
from tests.serving import Served, differences, recorded_shapes

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
    ((status, answer),) = model.post(bytes_tensor("image", FILES))
    assert status == 200, answer
    found = [json.loads(each) for each in answer["outputs"][0]["data"]]
    assert not differences(found, model.ask(TEXTS), 1e-5)


def test_images_of_other_sizes_run_in_batches_of_equal_shapes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A processor that keeps the size of an image gives rows of several shapes."""
    folder = tiny.write(tmp_path / "model", MODE)
    engine: Engine = Served(folder, MODE, max_batch_pixels=3 * 32 * 32).engine
    shapes = recorded_shapes(engine, "pixel_values", monkeypatch)
    engine.predict([Request(text) for text in [*TEXTS, TEXTS[0]]])
    assert shapes == [(3, 3, 32, 32), (2, 3, 32, 32)]


def test_a_jpeg_is_read_as_the_pipeline_reads_it(model: Served) -> None:
    stream = BytesIO()
    IMAGES[1].save(stream, "JPEG", quality=60)
    ((status, answer),) = model.post(raw(stream.getvalue(), "image/jpeg"))
    assert status == 200
    assert {each["label"] for each in answer} == {"circle", "square", "triangle"}


def test_a_model_of_the_colours_of_an_image_is_refused(tmp_path: Path) -> None:
    """ImageGPT reads the number of the colour of each pixel."""
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 1, "n_positions": 16, "vocab_size": 9}
    module = transformers.ImageGPTForImageClassification(transformers.ImageGPTConfig(**sizes))
    module.save_pretrained(tmp_path)
    size = {"height": 4, "width": 4}
    ImageGPTImageProcessorPil(clusters=[[0.0] * 3] * 8, size=size).save_pretrained(tmp_path)
    with refused(WrongCheckpoint, "imagegpt", "input_ids"):
        Served(tmp_path, "image_classification")
