"""Chats with images from unmodified clients, in an environment of their own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e.clients import run_client
from tests.http_front import front
from tests.images import TEXTS
from tests.modes.image_text_to_text import chat_about
from tests.serving import Served

MODE = "image_text_to_text"


@pytest.mark.nightly  # A process with the clients starts.
def test_clients_send_images_to_a_chat(served: Callable[..., Served]) -> None:
    model, messages = served(MODE), chat_about(TEXTS[1], "What is it?")
    with front({MODE: model}) as url:
        found = run_client(
            "image_chats_client",
            base_url=f"{url}/{MODE}/1.0/v1",
            messages=messages,
            max_tokens=7,
            broken=chat_about("AAAA", "What is it?"),
        )
    (expected,) = model.ask(messages, max_new_tokens=7, details=True)
    assert found["chat"] == found["hub"] == "".join(found["parts"]) == expected["generated_text"]
    assert found["usage"]["prompt_tokens"] == expected["details"]["input_length"]
    assert "The image is no image that can be read" in found["refused"]
