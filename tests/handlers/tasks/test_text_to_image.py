"""Text to image: images of diffusers' pipelines, files, streams, limits and time."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from hf_serve.handlers.errors import DeadlineExceeded, RequestError
from hf_serve.handlers.http.request import HttpRequest
from hf_serve.handlers.http.response import HttpResponse
from hf_serve.handlers.process.deadline import Deadline
from hf_serve.handlers.telemetry.metrics import Meter
from hf_serve.handlers.types.request import Request, StepStream
from tests.modes.text_to_image import FEW, SIDE
from tests.sentences import Sentence
from tests.serving import Served, read_png

MODE = "text_to_image"
PROMPTS = ["a red circle", "the sea at night", "Nina Vogel sings in Paris " * 9]
SETTINGS: list[dict[str, Any]] = [
    {"num_inference_steps": 3, "seed": 5},
    {"num_inference_steps": 2, "seed": 6, "negative_prompt": "blue", "guidance_scale": 2.0},
    {"num_inference_steps": 2, "seed": 7, "height": 2 * SIDE, "width": SIDE},
]


@pytest.fixture(scope="module")
def model(served: Callable[..., Served]) -> Served:
    return served(MODE)


@pytest.fixture(scope="module")
def pipeline(checkpoint: Callable[..., Path]) -> Callable[..., Any]:
    """Diffusers' pipeline: the pixels of the image of a prompt."""
    from diffusers import AutoPipelineForText2Image  # noqa: PLC0415 - takes seconds

    loaded = AutoPipelineForText2Image.from_pretrained(checkpoint(MODE), use_safetensors=True)
    loaded.set_progress_bar_config(disable=True)

    def draw(prompt: str, *, seed: int, **settings: Any) -> Any:
        generator = torch.Generator().manual_seed(seed)
        return np.asarray(loaded(prompt, generator=generator, **settings).images[0])

    return cache(draw)


def sent(body: Any, parts: list[bytes] | None = None, **headers: str) -> HttpRequest:
    """Return a request, whose response in parts is appended to a list."""

    def send(part: HttpResponse) -> None:
        assert parts is not None
        parts.append(part.body)

    return HttpRequest({"body": body}, headers, send=None if parts is None else send)


def respond(model: Served, *requests: HttpRequest) -> list[HttpResponse]:
    return model.dispatcher.dispatch(requests, Meter())


def test_images_are_those_of_the_pipeline_alone_and_in_a_batch_with_a_broken_request(
    model: Served, pipeline: Callable[..., Any]
) -> None:
    asked = [(prompt, settings) for settings in SETTINGS for prompt in PROMPTS]
    bodies: list[Any] = [{"inputs": prompt, "parameters": given} for prompt, given in asked]
    broken = {"inputs": PROMPTS[0], "parameters": {"width": 20, "height": 20}}
    replies = model.post(*bodies[:4], broken, *bodies[4:])
    status, error = replies.pop(4)
    assert (status, error["code"]) == (422, 422)
    for (prompt, given), body, (status, (image,)) in zip(asked, bodies, replies, strict=True):
        assert status == 200
        assert (read_png(image["image"]) == pipeline(prompt, **given)).all()
        assert model.post(body) == [(200, [image])]


def test_each_image_of_a_prompt_has_the_next_seed(
    model: Served, pipeline: Callable[..., Any]
) -> None:
    # As many as the model makes a request.
    images = model.ask("a fox", num_images_per_prompt=4, **FEW)
    assert [image["seed"] for image in images] == [3, 4, 5, 6]
    for image in images:
        expected = pipeline("a fox", num_inference_steps=1, seed=image["seed"])
        assert (read_png(image["image"]) == expected).all()


def test_without_a_seed_the_result_has_the_one_that_gives_the_same_image(model: Served) -> None:
    first, second = (model.ask("a fox", seed=None)[0] for _ in range(2))
    assert first["seed"] != second["seed"]
    assert model.ask("a fox", seed=first["seed"]) == [first]


def test_a_scheduler_of_a_request_changes_no_other_request(model: Served) -> None:
    alone = model.ask("a fox", num_inference_steps=3)
    other = model.ask("a fox", num_inference_steps=3, scheduler="EulerDiscreteScheduler")
    assert model.ask("a fox", num_inference_steps=3) == alone != other


@pytest.mark.parametrize(
    ("accept", "found", "kind"),
    [
        ("image/png", "image/png", "PNG"),
        ("image/*", "image/png", "PNG"),
        ("image/webp, image/jpeg;q=0.5", "image/webp", "WEBP"),
        ("image/jpeg", "image/jpeg", "JPEG"),
    ],
)
def test_the_response_is_a_file_where_the_accept_header_prefers_one(
    model: Served, accept: str, found: str, kind: str
) -> None:
    (response,) = respond(model, sent({"inputs": "a fox"}, accept=accept))
    assert (response.status, response.content_type) == (200, found)
    with Image.open(BytesIO(response.body)) as image:
        assert (image.format, image.size) == (kind, (SIDE, SIDE))


def test_several_images_are_no_file(model: Served) -> None:
    body = {"inputs": "a fox", "parameters": {"num_images_per_prompt": 2}}
    (response,) = respond(model, sent(body, accept="image/png"))
    assert response.status == 422
    assert b"is one file, and the result has 2" in response.body


def test_a_stream_has_an_event_for_each_step_and_then_the_images(model: Served) -> None:
    parts: list[bytes] = []
    given = {"num_inference_steps": 2, "num_images_per_prompt": 2, "seed": 5}
    request = sent({"inputs": "a fox", "parameters": given, "stream": True}, parts)
    (response,) = respond(model, request)
    assert response.content_type == "text/event-stream"
    steps = [json.loads(part.removeprefix(b"data: ")) for part in parts]
    assert steps == [{"step": step, "steps": 4} for step in (1, 2, 3, 4)]
    last = json.loads(response.body.removeprefix(b"data: "))
    assert last == {"result": model.ask("a fox", **given)}


@pytest.mark.parametrize(
    ("parameters", "status", "facts"),
    [
        ({"height": 2048, "width": 2048}, 413, ["1,048,576"]),
        ({"height": 20, "width": 16}, 422, ["8", "16"]),
        ({"height": 16}, 400, ["height"]),
        ({"num_inference_steps": 101}, 413, ["101"]),
        ({"num_images_per_prompt": 5}, 413, ["5"]),
        ({"scheduler": "MyScheduler"}, 422, ["MyScheduler"]),
        ({"negative_prompt": "half \ud83d"}, 400, ["negative_prompt"]),
    ],
)
def test_what_the_model_does_not_make_is_refused(
    model: Served, parameters: dict[str, Any], status: int, facts: list[str]
) -> None:
    found, sentence = model.refuse("a fox", **parameters)
    assert (found, sentence) == (status, Sentence(*facts))


@pytest.mark.parametrize(("text", "fragment"), [("", "is empty"), (5, "a number"), (None, "null")])
def test_what_is_not_a_text_is_refused(model: Served, text: Any, fragment: str) -> None:
    status, sentence = model.refuse(text)
    assert (status, fragment in sentence) == (400, True)


def test_an_image_ends_after_the_step_in_which_the_time_is_over(model: Served) -> None:
    deadline = Deadline(1000)
    seen: list[int] = []

    def on_step(step: int, _steps: int) -> None:
        seen.append(step)
        if step == 2:
            deadline.expire()

    slow = Request("a fox", {"num_inference_steps": 9}, progress=StepStream(on_step))
    late, in_time = model.engine.predict([slow, Request("a fox")], deadline=deadline), model
    assert seen == [1, 2]
    assert all(isinstance(each, DeadlineExceeded) for each in late)
    assert "pixels were computed; send it again, or send fewer or smaller images" in str(late[0])
    assert not isinstance(in_time.engine.predict([Request("a fox")])[0], RequestError)


def test_images_generations_of_openai(model: Served) -> None:
    body = {"prompt": "a fox", "n": 2, "size": f"{2 * SIDE}x{SIDE}", "seed": 3}
    request = sent({**body, "output_format": "jpeg"}, url_path="v1/images/generations")
    (response,) = respond(model, request)
    answer = json.loads(response.body)
    assert answer["seeds"] == [3, 4]
    for image in answer["data"]:
        with Image.open(BytesIO(base64.b64decode(image["b64_json"]))) as opened:
            assert (opened.format, opened.size) == ("JPEG", (2 * SIDE, SIDE))


def test_a_stream_of_openai_has_comments_and_the_image(model: Served) -> None:
    parts: list[bytes] = []
    body = {"prompt": "a fox", "stream": True, "num_inference_steps": 2, "seed": 3}
    (response,) = respond(model, sent(body, parts, url_path="v1/images/generations"))
    assert parts == [b": step 1 of 2\n\n", b": step 2 of 2\n\n"]
    name, data = response.body.decode().strip().split("\n")
    assert name == "event: image_generation.completed"
    expected = model.ask("a fox", num_inference_steps=2, seed=3)[0]["image"]
    assert json.loads(data.removeprefix("data: "))["b64_json"] == expected


@pytest.mark.parametrize(
    ("more", "status", "facts"),
    [
        ({"response_format": "url"}, 422, ["response_format"]),
        ({"output_compression": 50}, 400, ["output_compression", "output_format"]),
        ({"background": "transparent"}, 422, ["background", "transparent"]),
        ({"stream": True, "partial_images": 2}, 422, ["partial_images"]),
        ({"size": "large"}, 400, ["size"]),
        ({"n": 9}, 413, ["num_images_per_prompt"]),
    ],
)
def test_what_openai_has_and_this_server_has_not_is_refused(
    model: Served, more: dict[str, Any], status: int, facts: list[str]
) -> None:
    request = sent({"prompt": "a fox", **more}, url_path="v1/images/generations")
    (response,) = respond(model, request)
    sentence = json.loads(response.body)["error"]["message"]
    assert (response.status, sentence) == (status, Sentence(*facts))


def test_another_model_makes_no_images(served: Callable[..., Served]) -> None:
    request = sent({"prompt": "a fox"}, url_path="v1/images/generations")
    (response,) = respond(served("fill_mask"), request)
    assert response.status == 422
    assert b"makes no images" in response.body
