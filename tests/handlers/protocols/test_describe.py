"""A model describes itself: TorchServe's describe call, and the path `describe`."""

from __future__ import annotations

from collections.abc import Callable

from hf_serve.handlers.http.request import HttpRequest
from tests.serving import Served


def test_the_path_has_the_response_of_torchserves_call(served: Callable[..., Served]) -> None:
    model = served("question_answering")
    called = HttpRequest({}, {"describe": "True"})
    by_path = HttpRequest({"body": b""}, {"url_path": "describe"})
    (status, one), (_, other) = model.post(called, by_path)
    assert status == 200
    assert one == other
    assert one["mode"] == "question_answering"
    assert one["input_columns"] == [["question", "context"]]
