"""Models that answer by their own code: Hugging Face's handler.py and SageMaker's inference.py."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from PIL import Image

from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.dispatcher import Dispatcher
from hf_serve.handlers.engine import Engine
from hf_serve.handlers.errors import ConfigError, WrongConfig
from hf_serve.handlers.http.request import HttpRequest
from hf_serve.handlers.http.response import HttpResponse
from hf_serve.handlers.inference_code import InferenceCodeEngine, has_inference_code
from hf_serve.handlers.process.deadline import NO_DEADLINE, Deadline
from hf_serve.handlers.tasks.custom_code import MODULE
from hf_serve.handlers.telemetry.metrics import Meter
from hf_serve.handlers.types.request import Request
from hf_serve.handlers.worker_start import load_engine
from tests.docs.pages import DOCS, blocks_of
from tests.sentences import Sentence, refused
from tests.serving import read_json

CODE = [block.text for block in blocks_of(DOCS / "custom-code.md") if block.language == "python"]
HANDLER_PY, INFERENCE_PY = CODE[1], CODE[2]
MODE = "sequence_classification"
JSON = "application/json"
ECHO = """
    class EndpointHandler:
        def __init__(self, path=""):
            self.path = path

        def __call__(self, data):
            return {"path": self.path, "data": data}
"""


class Asked:
    """A loaded model that is asked over HTTP's terms."""

    def __init__(self, engine: InferenceCodeEngine) -> None:
        self.engine, self.dispatcher = engine, Dispatcher(engine)

    def responses(self, *rows: Any, deadline: Deadline = NO_DEADLINE) -> list[HttpResponse]:
        http_requests = [self.dispatcher.http_request(*row) for row in rows]
        return self.dispatcher.dispatch(http_requests, Meter(), deadline)

    def post(self, body: bytes, content_type: str = JSON, **headers: str) -> HttpResponse:
        headers = {"content-type": content_type, **headers}
        (response,) = self.responses(({"body": body}, headers))
        return response

    def ask(self, body: bytes, content_type: str = JSON) -> Any:
        response = self.post(body, content_type)
        assert response.status == 200, response.body
        return read_json(response.body)

    def refuse(self, body: bytes, content_type: str = JSON, **headers: str) -> tuple[int, str]:
        response = self.post(body, content_type, **headers)
        assert response.status >= 400
        return response.status, read_json(response.body)["message"]


Load = Callable[..., Asked]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    return folder


@pytest.fixture
def load(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Return a model whose folder has a file with its own code."""
    monkeypatch.setattr("sys.path", [*sys.path])

    def made(code: str, name: str = "handler.py", mode: str = "custom", **keys: Any) -> Asked:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(dedent(code), encoding="utf-8")
        config = ModelConfig.parse({"handler": {"mode": mode, "custom": name, **keys}})
        assert has_inference_code(folder, config)
        return Asked(InferenceCodeEngine.load(folder, config))

    return made


def test_the_handler_of_the_documentation_answers(load: Load, folder: Path) -> None:
    (folder / "words.txt").write_text("fine film", encoding="utf-8")
    model = load(HANDLER_PY)
    (found,) = model.ask(b'{"inputs": "a fine day"}')
    assert found == {"label": "FOUND", "score": 0.5, "words": ["fine"]}
    assert model.refuse(b'{"inputs": 5}') == (400, "Send one text.")


def test_the_script_of_the_documentation_answers_with_the_model_of_the_mode(
    checkpoint: Callable[..., Path], tmp_path: Path
) -> None:
    (tmp_path / "inference.py").write_text(INFERENCE_PY, encoding="utf-8")
    (tmp_path / "model.yaml").write_text(
        str({"handler": {"mode": MODE, "custom": "inference.py"}}), encoding="utf-8"
    )
    engine = load_engine(checkpoint(MODE), ModelConfig.read(tmp_path / "model.yaml"))
    assert isinstance(engine, InferenceCodeEngine)
    model = Asked(engine)
    response = model.post(b"A fine film\n", "text/plain", accept=JSON)
    assert (response.status, response.content_type) == (200, "text/plain")
    plain = Engine.load(checkpoint(MODE), ModelConfig.parse({"handler": {"mode": MODE}}))
    (labels,) = plain.predict([Request("A fine film")])
    assert response.body.decode() == labels[0]["label"]  # type: ignore[index]
    assert model.refuse(b"{}") == (400, "Send text/plain, not application/json.")


@pytest.mark.parametrize(
    ("body", "content_type", "data"),
    [
        (b'{"inputs": [1], "parameters": {"k": 2}}', JSON, {"inputs": [1], "parameters": {"k": 2}}),
        (b'["a", "b"]', JSON, {"inputs": ["a", "b"]}),
        ("Ähre".encode(), "text/plain", {"inputs": "Ähre"}),
        (b"inputs\none\ntwo\n", "text/csv", {"inputs": ["one", "two"]}),
        (b"a,b\n1,2\n", "text/csv", {"inputs": [{"a": "1", "b": "2"}]}),
        (b'{"instances": [1], "parameters": {}}', JSON, {"instances": [1], "parameters": {}}),
    ],
)
def test_a_body_is_decoded_by_its_type(
    load: Load, folder: Path, body: bytes, content_type: str, data: Any
) -> None:
    assert load(ECHO).ask(body, content_type) == {"path": str(folder), "data": data}


def test_images_come_decoded_and_other_files_as_bytes(load: Load) -> None:
    model = load(
        """
        class EndpointHandler:
            def __init__(self, path=""): ...

            def __call__(self, data):
                given = data["inputs"]
                return given[:4] if isinstance(given, bytes) else given.rotate(90)
        """
    )
    stream = BytesIO()
    Image.new("RGB", (3, 2), "red").save(stream, "PNG")
    response = model.post(stream.getvalue(), "image/png", accept="image/webp")
    assert response.content_type == "image/webp"
    assert Image.open(BytesIO(response.body)).size == (3, 2)
    response = model.post(b"RIFF\x00\xff", "audio/wav", accept="*/*")
    assert (response.content_type, response.body) == ("application/octet-stream", b"RIFF")
    assert model.refuse(b"no image", "image/png")[0] == 400


def test_a_form_may_have_a_file(load: Load) -> None:
    row: Any = {"inputs": b"\x89PNG\xff", "parameters": '{"k": 1}'}
    headers = {"content-type": "multipart/form-data", "inputs": {"content-type": "image/png"}}
    code = """
        class EndpointHandler:
            def __init__(self, path=""): ...

            def __call__(self, data):
                return [len(data["inputs"]), data["parameters"]]
    """
    (response,) = load(code).responses((row, headers))
    assert read_json(response.body) == [5, {"k": 1}]
    script = "def model_fn(path): ...\ndef transform_fn(model, body, *types): return body"
    (response,) = load(script, "inference.py").responses((row, headers))
    assert read_json(response.body) == {"inputs": "iVBOR/8=", "parameters": {"k": 1}}


def test_a_script_gets_objects_without_inputs(
    load: Load, folder: Path, checkpoint: Callable[..., Path]
) -> None:
    script = "def model_fn(path): ...\ndef predict_fn(data, model): return data"
    assert load(script, "inference.py").ask(b'{"text": "a"}') == {"text": "a"}
    shutil.copytree(checkpoint("question_answering"), folder, dirs_exist_ok=True)
    script = "def output_fn(prediction, accept): return prediction"
    model = load(script, "inference.py", "question_answering")
    body = b'{"question": "Who sings?", "context": "Ada sings.", "parameters": {"top_k": 2}}'
    assert len(model.ask(body)) == 2
    assert model.refuse(b'{"inputs": "a", "parameters": [1]}') == (400, Sentence("parameters"))


@pytest.mark.parametrize(
    "code",
    [
        "class Other(Base): ...\nEndpointHandler = Other",
        "if True:\n    class EndpointHandler(Base): ...",
        "try:\n    import missing\nexcept ImportError:\n    class EndpointHandler(Base): ...",
    ],
    ids=["assigned", "condition", "except"],
)
def test_a_class_may_be_defined_in_other_statements(load: Load, code: str) -> None:
    base = (
        "class Base:\n    def __init__(self, path): ...\n    def __call__(self, data): return 1\n"
    )
    assert load(base + code).ask(b'{"inputs": 1}') == 1


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("v1/models/model", {"id": "model", "ready": True}),
        ("v2/models/model/ready", {"name": "model", "ready": True}),
        ("v2/health/ready", {"ready": True}),
        ("info", {"model_pipeline_tag": "custom"}),
    ],
)
def test_the_paths_that_tell_whether_it_answers_are_those_of_every_model(
    load: Load, path: str, expected: dict[str, Any]
) -> None:
    (response,) = load(ECHO).responses(({}, {"url_path": path}))
    assert response.status == 200, response.body
    assert expected.items() <= read_json(response.body).items()


def test_arrays_and_tensors_are_lists(load: Load) -> None:
    model = load(
        """
        import numpy as np
        import torch

        class EndpointHandler:
            def __init__(self, path=""): ...

            def __call__(self, data):
                return [{"a": np.float32(0.5), "b": np.arange(2), "c": torch.ones(2)}]
        """
    )
    assert model.ask(b'{"inputs": 1}') == [{"a": 0.5, "b": [0, 1], "c": [1.0, 1.0]}]


def test_modules_next_to_the_code_and_in_the_folder_are_imported(load: Load, folder: Path) -> None:
    (folder / "code").mkdir()
    (folder / "code" / "next_to_it.py").write_text("NAME = 'next'", encoding="utf-8")
    (folder / "in_the_folder.py").write_text("NAME = 'folder'", encoding="utf-8")
    code = """
        import next_to_it, in_the_folder

        def model_fn(model_dir): return next_to_it.NAME + in_the_folder.NAME
        def predict_fn(data, model): return model
    """
    assert load(code, "code/inference.py").ask(b'{"inputs": 1}') == "nextfolder"


def test_functions_get_the_context_if_they_take_it(load: Load, folder: Path) -> None:
    model = load(
        """
        def model_fn(model_dir, context): return context.system_properties
        def input_fn(body, content_type, context=None): return [body, content_type, bool(context)]
        def predict_fn(data, model): return [data, model]
        def output_fn(prediction, accept): return prediction
        """
    )
    data, properties = model.ask(b'{"a": 1}')
    assert data == ['{"a": 1}', JSON, True]
    assert properties == {"model_dir": str(folder), "gpu_id": None}


def test_functions_with_async_def_are_awaited(load: Load) -> None:
    model = load(
        """
        async def model_fn(model_dir): return len

        async def predict_fn(data, model): return model(data["inputs"])
        """
    )
    assert model.ask(b'{"inputs": "four"}') == 4


def test_predict_fn_uses_the_connections_that_model_fn_has_opened(load: Load) -> None:
    model = load(
        """
        import asyncio

        async def echo(reader, writer):
            while line := await reader.readline():
                writer.write(line)

        async def model_fn(model_dir):
            server = await asyncio.start_server(echo, "127.0.0.1", 0)
            host, port = server.sockets[0].getsockname()
            return server, *await asyncio.open_connection(host, port)

        async def predict_fn(data, model):
            _, reader, writer = model
            writer.write(data["inputs"].encode() + b"\\n")
            return (await asyncio.wait_for(reader.readline(), 60)).decode()
        """
    )
    assert [model.ask(b'{"inputs": "%d"}' % number) for number in range(2)] == ["0\n", "1\n"]


def test_transform_fn_takes_the_place_of_the_steps(load: Load) -> None:
    model = load(
        """
        def model_fn(model_dir): return len
        def transform_fn(model, body, content_type, accept): return str(model(body)), accept
        """
    )
    response = model.post(b"\x00\x01", "application/x-own", accept="text/plain")
    assert (response.body, response.content_type) == (b"2", "text/plain")


def test_an_error_concerns_its_request_alone_and_has_no_traceback(
    load: Load, caplog: pytest.LogCaptureFixture
) -> None:
    model = load(
        """
        import sys

        class EndpointHandler:
            def __init__(self, path=""): ...

            def __call__(self, data):
                if data["inputs"] == "exit":
                    sys.exit()
                return {"result": {"fine": 1, "wrong": object()}[data["inputs"]]}
        """
    )
    bodies = [b"fine", b"Quimby", b"wrong", b"exit", b"fine"]
    responses = model.responses(*(({"body": body}, {}) for body in bodies))
    assert [each.status for each in responses] == [200, 500, 500, 500, 200]
    failed, no_json, _ = (read_json(each.body)["message"] for each in responses[1:4])
    assert failed == Sentence("EndpointHandler.__call__", "handler.py", "KeyError")
    assert no_json == Sentence("EndpointHandler.__call__", "handler.py", "JSON")
    assert "handler.py" in caplog.text
    assert "Quimby" not in caplog.text + failed


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{}", {}, 400),
        (b'{"inputs": ', {}, 400),
        (b"", {}, 400),
        (b'{"inputs": 1}', {"url_path": "v1/embeddings"}, 404),
        (b'{"inputs": 1}', {"explain": "True"}, 422),
    ],
)
def test_what_the_code_cannot_answer_is_refused_before_it_runs(
    load: Load, body: bytes, headers: dict[str, str], status: int
) -> None:
    assert load(ECHO).refuse(body, **headers) == (status, Sentence())


def test_a_call_that_takes_too_long_ends_and_the_worker_has_to(load: Load) -> None:
    model = load(
        """
        import threading

        released = threading.Event()

        class EndpointHandler:
            def __init__(self, path=""): ...

            def __call__(self, data):
                released.wait()
        """
    )
    row: Any = ({"body": b"slow"}, {})
    slow, after = model.responses(row, row, deadline=Deadline(0.2))
    assert (slow.status, after.status) == (503, 503)
    assert read_json(slow.body)["message"] == Sentence("handler.py", "predict_timeout")
    assert model.engine.device_failed
    sys.modules[MODULE].released.set()


def test_it_is_described_by_its_code(load: Load) -> None:
    dispatcher = load(ECHO).dispatcher
    (response,) = dispatcher.dispatch([HttpRequest({}, {"describe": "True"})], Meter())
    described = read_json(response.body)
    assert described["mode"] == "custom"
    assert described["inference_code"] == {"file": "handler.py", "defines": "EndpointHandler"}


@pytest.mark.parametrize(
    ("code", "facts"),
    [
        (
            "class EndpointHandler:\n    def __init__(self, path): 1 / 0",
            ("line 2", "ZeroDivisionError"),
        ),
        ("import no_such_package\nclass EndpointHandler: ...", ("no_such_package", "requirements")),
        ("def model_fn(model_dir): raise OSError('gone')", ("model_fn", "gone")),
        ("def model_fn(model_dir): raise SystemExit", ("model_fn", "SystemExit")),
        ("model_fn = 5\ndef predict_fn(data, model): ...", ("model_fn",)),
        ("def predict_fn(data, model): ...", ("model_fn",)),
        (
            "def model_fn(d): ...\ndef transform_fn(*a): ...\ndef input_fn(*a): ...",
            ("transform_fn", "input_fn"),
        ),
    ],
)
def test_code_that_does_not_load_a_model_stops_the_load(
    load: Load, code: str, facts: tuple[str, ...]
) -> None:
    with refused(WrongConfig, *facts):
        load(code)


def test_a_file_without_a_model_stops_the_load_with_the_mode_custom(folder: Path) -> None:
    (folder / "own.py").write_text("def preprocess(request): ...", encoding="utf-8")
    config = ModelConfig.parse({"handler": {"mode": "custom", "custom": "own.py"}})
    with refused(WrongConfig, "handler.mode", "own.py", "EndpointHandler"):
        has_inference_code(folder, config)


def test_texts_that_run_side_by_side_are_refused(load: Load, folder: Path) -> None:
    load(ECHO)
    document = {"handler": {"mode": "custom", "custom": "handler.py"}, "continuousBatching": True}
    with refused(WrongConfig, "continuousBatching", "handler.py"):
        InferenceCodeEngine.load(folder, ModelConfig.parse(document))


@pytest.mark.parametrize(
    ("keys", "facts"),
    [
        ({}, ("custom",)),
        ({"custom": "handler.py", "save_mode": "onnx"}, ("save_mode",)),
    ],
)
def test_a_yaml_that_excludes_itself_is_refused(
    keys: dict[str, str], facts: tuple[str, ...]
) -> None:
    with refused(ConfigError, "mode: custom", *facts):
        ModelConfig.parse({"handler": {"mode": "custom", **keys}})
