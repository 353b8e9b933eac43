"""Images by OpenAI's own client and by Hugging Face's."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e.clients import run_client
from tests.http_front import front
from tests.serving import Served, read_png

MODE = "text_to_image"
SETTINGS = {"num_inference_steps": 2, "seed": 4}


@pytest.mark.nightly  # A process with the clients starts.
def test_images_of_both_clients_are_those_of_plain_requests(served: Callable[..., Served]) -> None:
    model = served(MODE)
    with front({MODE: model}) as url:
        found = run_client(
            "image_client", url=f"{url}/{MODE}", prompt="a fox", settings=SETTINGS, size="32x16"
        )

    wide = model.ask("a fox", width=32, height=16, num_images_per_prompt=2, **SETTINGS)
    (square,) = model.ask("a fox", **SETTINGS)
    assert found["images"] == [image["image"] for image in wide]
    assert found["events"] == [["image_generation.completed", square["image"]]]
    assert "stores no images; set it to b64_json" in found["refused"]
    assert (read_png(found["of_hugging_face"]) == read_png(square["image"])).all()
