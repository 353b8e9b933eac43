"""`handler.custom`: a user's own code around a model."""

from __future__ import annotations

import asyncio
import base64
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.engine import Engine
from hf_serve.handlers.errors import BadRequest, ConfigError, Unprocessable, WrongConfig
from hf_serve.handlers.tasks.custom_code import CustomCode, CustomCodeFailed
from hf_serve.handlers.types.request import Request, TextStream
from tests.docs.pages import DOCS, blocks_of
from tests.sentences import Sentence, refused
from tests.serving import differences

Load = Callable[..., Engine]
MODE = "sequence_classification"
PAGE = DOCS / "custom-code.md"
STRIP = """
    import re

    def preprocess(request):
        return re.sub("<[^>]+>", "", request.inputs)
"""


@pytest.fixture
def load(checkpoint: Callable[..., Path], tmp_path: Path) -> Load:
    """Return an engine with a file of own code beside its YAML."""

    def made(code: str, mode: str = MODE, **keys: Any) -> Engine:
        (tmp_path / "my_code.py").write_text(dedent(code), encoding="utf-8")
        handler = {"mode": mode, "custom": "my_code.py", **keys}
        path = tmp_path / "model.yaml"
        path.write_text(str({"handler": handler}), encoding="utf-8")
        return Engine.load(checkpoint(mode), ModelConfig.read(path))

    return made


def results(engine: Engine, *inputs: Any) -> list[Any]:
    return list(engine.predict([Request(each) for each in inputs]))


def test_inputs_are_changed_before_the_task_reads_them(load: Load) -> None:
    tagged, plain = results(load(STRIP), "<p>A fine <b>film</b></p>", "A fine film")
    assert not differences(tagged, plain, 1e-6)


def test_the_example_of_the_documentation_strips_html(load: Load) -> None:
    example = next(block.text for block in blocks_of(PAGE) if block.language == "python")
    tagged, plain, list_ = results(load(example), "<p>fine&nbsp;film</p>", "fine film", ["fine"])
    assert not differences(tagged, plain, 1e-6)
    assert (type(list_), str(list_)) == (BadRequest, "Send one text.")


def test_a_request_is_changed_as_a_whole(load: Load) -> None:
    engine = load(
        """
        from dataclasses import replace

        def preprocess(request):
            return replace(request, parameters={"top_k": 1})
        """
    )
    assert len(results(engine, "A fine film")[0]) == 1


def test_a_file_has_data_classes(load: Load) -> None:
    engine = load(
        """
        from __future__ import annotations
        from dataclasses import dataclass

        @dataclass
        class Best:
            label: str

        def postprocess(result):
            return Best(result[0]["label"]).label
        """
    )
    assert isinstance(results(engine, "A fine film")[0], str)


def test_results_are_changed(load: Load) -> None:
    engine = load("def postprocess(result): return {'best': result[0]['label']}")
    assert set(results(engine, "A fine film")[0]) == {"best"}


ASYNC = """
    import asyncio

    async def preprocess(request):
        await asyncio.sleep(0)
        return request.inputs.strip("!")

    async def postprocess(result):
        return result[0]["label"]
"""


@pytest.mark.parametrize("in_notebook", [False, True])
def test_functions_with_async_def_are_awaited(load: Load, *, in_notebook: bool) -> None:
    """A notebook runs an event loop in the thread that calls the engine."""
    engine = load(ASYNC)

    async def ask() -> list[Any]:
        return results(engine, "A fine film!!!")

    (found,) = asyncio.run(ask()) if in_notebook else results(engine, "A fine film!!!")
    (expected,) = results(load(ASYNC.replace("async def pre", "async def _pre")), "A fine film")
    assert found == expected


CLIENT = """
    import asyncio

    texts = None

    async def answer():
        while True:
            text, stripped = await texts.get()
            stripped.set_result(text.strip("!"))

    async def preprocess(request):
        global texts, answering
        if texts is None:
            texts, answering = asyncio.Queue(), asyncio.create_task(answer())
        stripped = asyncio.get_running_loop().create_future()
        texts.put_nowait((request.inputs, stripped))
        return await asyncio.wait_for(stripped, 60)
"""


def test_what_asynchronous_code_keeps_serves_later_requests_of_any_thread(load: Load) -> None:
    engine = load(CLIENT)
    (expected,) = results(engine, "A fine film")
    for _ in range(2):
        with ThreadPoolExecutor(1) as thread:
            assert thread.submit(results, engine, "A fine film!!!").result(60) == [expected]


def test_a_task_that_is_cancelled_concerns_its_request_alone(load: Load) -> None:
    engine = load(
        """
        import asyncio

        async def preprocess(request):
            if request.inputs == "cancel":
                raise asyncio.CancelledError
            return request
        """
    )
    fine, failed = results(engine, "A fine film", "cancel")
    assert results(engine, "A fine film") == [fine]
    assert (failed.status, str(failed)) == (500, Sentence("preprocess", "CancelledError"))


@pytest.mark.parametrize("precision", ["float32", "int8", "ubinary"])
def test_the_numbers_of_a_vector_are_changed_whatever_its_form(load: Load, precision: str) -> None:
    engine = load("def postprocess(result): return result[:2]", "sentence_embedding")
    listed, in_bytes = engine.predict(
        [
            Request("A fine film", {"precision": precision, "encoding_format": each})
            for each in ("float", "base64")
        ]
    )
    dtype = np.dtype({"float32": "<f4", "int8": "i1", "ubinary": "u1"}[precision])
    decoded = np.frombuffer(base64.b64decode(str(in_bytes)), dtype)
    assert len(decoded) == 2
    assert decoded == pytest.approx(np.array(listed))


def test_a_changed_vector_that_has_no_bytes_is_an_error_of_the_code(load: Load) -> None:
    parameters = {"precision": "int8", "encoding_format": "base64"}
    for code, expected in (
        ("[1000]", CustomCodeFailed),
        ("[0.7]", CustomCodeFailed),
        ("[[1], [2]]", CustomCodeFailed),
        ("{'v': result}", dict),
    ):
        engine = load(f"def postprocess(result): return {code}", "sentence_embedding")
        (found,) = engine.predict([Request("A fine film", parameters)])
        assert isinstance(found, expected)


def test_explanations_read_the_changed_inputs(load: Load) -> None:
    engine = load(STRIP, captum_explanation=True)
    tagged, plain = engine.explain([Request("<p>A fine film</p>"), Request("A fine film")])
    assert not differences(tagged, plain, 1e-6)


def test_a_task_of_its_own_takes_the_place_of_the_mode(load: Load) -> None:
    engine = load(
        """
        from hf_serve.handlers.tasks.sequence_classification import Task as Classification

        class Task(Classification):
            def decode(self, *arguments):
                return [dict(each, score=0.5) for each in super().decode(*arguments)]
        """
    )
    assert {each["score"] for each in results(engine, "A fine film")[0]} == {0.5}


def test_an_error_concerns_its_request_alone(load: Load, caplog: Any) -> None:
    engine = load(
        """
        def preprocess(request):
            if request.inputs == "refused":
                raise ValueError("This model reads no such texts.")
            return {"wrong": {}[request.inputs]} if request.inputs == "Quimby" else request
        """
    )
    fine, refused_, failed = results(engine, "A fine film", "refused", "Quimby")
    assert results(engine, "A fine film") == [fine]
    assert (type(refused_), str(refused_)) == (BadRequest, "This model reads no such texts.")
    assert isinstance(failed, CustomCodeFailed)
    assert (failed.status, str(failed)) == (500, Sentence("preprocess", "my_code.py", "KeyError"))
    assert "my_code.py" in caplog.text
    assert "Quimby" not in caplog.text + str(failed)


@pytest.mark.parametrize("result", ["object()", "float('nan')", "{1j: 2}"])
def test_a_result_that_is_no_json_is_an_error(load: Load, result: str) -> None:
    (failed,) = results(load(f"def postprocess(result): return {result}"), "A fine film")
    assert (failed.status, str(failed)) == (500, Sentence("postprocess", "my_code.py"))


def test_a_result_that_is_changed_when_it_is_complete_is_not_streamed() -> None:
    code = CustomCode("my_code.py", postprocess=len)
    with refused(Unprocessable, "my_code.py", "stream"):
        code.prepared(Request("A", stream=TextStream(lambda *_: None)))


@pytest.mark.parametrize(
    ("code", "facts"),
    [
        ("", ("preprocess",)),
        ("preprocess = 3", ("preprocess",)),
        ("Task = int", ("Task",)),
        ("def preprocess(request) return request", ("SyntaxError",)),
        ("import no_such_package", ("no_such_package", "line 1")),
        ("x = 1\n1 / 0", ("ZeroDivisionError", "line 2")),
    ],
)
def test_a_file_that_does_not_run_stops_the_load(
    load: Load, code: str, facts: tuple[str, ...]
) -> None:
    with refused(WrongConfig, "handler.custom", "my_code.py", *facts):
        load(code)


def test_a_file_that_is_not_there_stops_the_load(checkpoint: Callable[..., Path]) -> None:
    config = ModelConfig.parse({"handler": {"mode": MODE, "custom": "gone.py"}})
    with refused(WrongConfig, "handler.custom", "gone.py"):
        Engine.load(checkpoint(MODE), config)


def test_a_name_that_is_no_python_file_is_refused() -> None:
    with refused(ConfigError, "handler.custom", "code.txt"):
        ModelConfig.parse({"handler": {"mode": MODE, "custom": "code.txt"}})


def test_a_finite_result_stays() -> None:
    assert CustomCode("a.py", postprocess=lambda each: each + 1).finished(1) == 2
    assert math.isnan(CustomCode("a.py").finished(math.nan))


def test_a_file_that_ends_the_program_is_refused(load: Load) -> None:
    with refused(WrongConfig, "my_code.py", "line 2", "SystemExit"):
        load("import sys\nsys.exit(3)")
