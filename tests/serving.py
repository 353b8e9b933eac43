"""A checkpoint behind the dispatcher, as in a worker, without TorchServe."""

from __future__ import annotations

import base64
import json
from io import BytesIO
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.dispatcher import Dispatcher
from hf_serve.handlers.engine import Engine
from hf_serve.handlers.http.request import HttpRequest
from hf_serve.handlers.http.response import HttpResponse
from hf_serve.handlers.telemetry.metrics import Meter
from hf_serve.handlers.types.request import TextStream
from tests.modes import cases

Reply = tuple[int, Any]


class Served:
    """A loaded model that answers requests; `handler` has the YAML's keys other than the mode."""

    def __init__(self, folder: Path, mode: str, **handler: Any) -> None:
        settings = {"mode": mode, "dtype": "float32", **cases(mode).repeatable, **handler}
        self.config = ModelConfig.parse({"handler": settings})
        self.engine = Engine.load(folder, self.config)
        self.dispatcher = Dispatcher(self.engine)

    @classmethod
    def of(cls, engine: Engine) -> Served:
        """Return a model that is loaded already."""
        model = cls.__new__(cls)
        model.engine, model.dispatcher = engine, Dispatcher(engine)
        return model

    def post(self, *contents: Any) -> list[Reply]:
        """Send contents, or whole requests, in one batch; returns each one's status and JSON."""
        http_requests = [
            each if isinstance(each, HttpRequest) else HttpRequest({"body": each}, {})
            for each in contents
        ]
        answers = self.dispatcher.dispatch(http_requests, Meter())
        return [(answer.status, read_json(answer.body)) for answer in answers]

    def ask(self, inputs: Any, **parameters: Any) -> Any:
        """Return the answer to one request, which must succeed."""
        ((status, answer),) = self.post({"inputs": inputs, "parameters": parameters})
        assert status == 200, answer
        return answer

    def refuse(self, inputs: Any, **parameters: Any) -> tuple[int, str]:
        """Return status and message of one request, which must fail."""
        ((status, answer),) = self.post({"inputs": inputs, "parameters": parameters})
        assert status >= 400, answer
        assert answer.keys() == {"code", "type", "message", "error", "error_type"}
        return status, str(answer["message"])


def explanation_of(content: Any) -> HttpRequest:
    """Return the request that sends a content to /explanations."""
    return HttpRequest({"body": content}, {"explain": "True"})


def read_json(body: bytes) -> Any:
    """Return the JSON of an answer; NaN and infinity are not JSON."""
    return json.loads(body, parse_constant=_refuse)


def differences(found: Any, expected: Any, tolerance: float, place: str = "answer") -> list[str]:
    """Describe where two JSON values differ.

    Floats above 1 may differ by more in proportion, and pixels of PNG files by one.
    """
    if isinstance(found, float) and isinstance(expected, float):
        same = abs(found - expected) <= tolerance * max(1.0, abs(expected))
    elif is_png(found) and is_png(expected):
        same = _same_pictures(read_png(found), read_png(expected))
    elif type(found) is type(expected) and (keys := _keys(found)) == _keys(expected) and keys:
        inside = [(found[key], expected[key], f"{place}.{key}") for key in keys]
        return [
            line for one, other, name in inside for line in differences(one, other, tolerance, name)
        ]
    else:
        same = type(found) is type(expected) and found == expected
    return [] if same else [f"{place} is {found!r}, not {expected!r}"]


def is_png(value: Any) -> bool:
    """Return whether a value is a PNG file in base64."""
    return isinstance(value, str) and value.startswith("iVBORw0KGgo")


def read_png(text: str) -> npt.NDArray[np.int64]:
    """Return the pixels of a PNG file in base64."""
    return np.asarray(Image.open(BytesIO(base64.b64decode(text)))).astype(np.int64)


# Rounding decides on which side of a mask's border a few pixels are.
MAX_BORDER_PIXELS = 4


def _same_pictures(found: npt.NDArray[Any], expected: npt.NDArray[Any]) -> bool:
    """Return whether pictures are alike; a pixel of a mask may be on either side of its border."""
    if found.shape != expected.shape:
        return False
    differ = np.abs(found - expected) > 1
    is_mask = not (found % 255).any() and not (expected % 255).any()
    return bool(differ.sum() <= (MAX_BORDER_PIXELS if is_mask else 0))


def _keys(value: Any) -> list[Any]:
    """Return the keys of an object or a list; none for other values."""
    if isinstance(value, dict):
        return sorted(value)
    return list(range(len(value))) if isinstance(value, (list, tuple)) else []


def _refuse(constant: str) -> NoReturn:
    raise AssertionError(f"{constant} is not JSON")


class SequenceStream(TextStream):
    """A stream that appends the number and the new text of each sequence of a prompt to a list."""

    sends_sequences = True

    def __init__(self, parts: list[tuple[int, str]], count: int, number: int = 0) -> None:
        super().__init__(lambda new, _: parts.append((number, new)))
        self._others = [SequenceStream(parts, 0, other) for other in range(1, count)]

    def of_sequence(self, number: int) -> TextStream:
        return self._others[number - 1] if number else self


def stream_into(parts: list[str]) -> TextStream:
    """Return a stream that appends each new part of a text to a list."""
    return TextStream(lambda new, _: parts.append(new))


def recorded_shapes(
    engine: Engine, name: str, monkeypatch: pytest.MonkeyPatch
) -> list[tuple[int, ...]]:
    """Return a list to which each forward adds the shape of one of its inputs."""
    shapes: list[tuple[int, ...]] = []
    forward = engine.model.forward

    def recorded(batch: Any) -> Any:
        shapes.append(tuple(batch[name].shape))
        return forward(batch)

    monkeypatch.setattr(engine.model, "forward", recorded)
    return shapes


def call(
    model: Served, path: str, body: Any = None, sent: list[HttpResponse] | None = None, **more: str
) -> HttpResponse:
    """Return the answer to one request; parts that are sent before it go into `sent`."""
    row = {"body": "" if body is None else body}
    send = None if sent is None else sent.append
    headers = {"url_path": path, "Content-Type": "application/json", **more}
    (answer,) = model.dispatcher.dispatch([HttpRequest(row, headers, send)], Meter())
    return answer
