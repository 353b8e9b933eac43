from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from hf_serve.handlers.errors import (
    BadRequest,
    DeviceFailed,
    InternalError,
    OutOfMemory,
    RequestError,
    attempt,
    attempt_all,
)
from tests.sentences import Sentence
from tests.serving import Served, explanation_of

Model = Callable[..., Served]
MODE = "sequence_classification"
SECRET = "the patient Quimby Zyzzyva"


@pytest.mark.parametrize("stage", ["parse", "encode", "run", "decode"])
def test_a_bug_is_reported_without_the_text_of_the_request(
    served: Model, monkeypatch: Any, caplog: Any, stage: str
) -> None:
    def fail(*_: Any) -> Any:
        raise ValueError(SECRET)

    model = served(MODE)
    monkeypatch.setattr(model.engine.task, stage, fail)
    with caplog.at_level(logging.DEBUG):
        ((status, answer),) = model.post({"inputs": SECRET})
    assert status == answer["code"] == 500
    assert answer["message"] == Sentence("ValueError")
    assert "ValueError in the handler, at " in caplog.text and Path(__file__).name in caplog.text
    assert not any(word in caplog.text for word in SECRET.split()[1:])


@pytest.mark.parametrize(
    "body",
    [
        {"inputs": SECRET},
        {"inputs": [SECRET, 5]},
        {"inputs": SECRET, "parameters": {SECRET: SECRET}},
        {SECRET: SECRET},
        SECRET.encode("utf-16"),
        f'{{"inputs": "{SECRET}'.encode(),
        f"{{'inputs': '{SECRET}', '\\d': 1 is 1}}".encode(),
    ],
)
def test_no_log_contains_request_text(served: Model, caplog: Any, capfd: Any, body: Any) -> None:
    with caplog.at_level(logging.DEBUG):
        served(MODE).post(body, explanation_of(body))
    written = caplog.text + "".join(capfd.readouterr())
    assert not any(word in written for word in SECRET.split()[1:])


def test_a_panic_in_the_tokenizer_fails_its_row_only(served: Model, monkeypatch: Any) -> None:
    class Panic(BaseException):
        """An error like that of the tokenizers library, which is no Exception."""

    model = served(MODE)
    encode = model.engine.task.encode

    def fail(queries: Any) -> Any:
        if any("panic" in query.text[0] for query in queries):
            raise Panic
        return encode(queries)

    monkeypatch.setattr(model.engine.task, "encode", fail)
    (first, _), (second, answer) = model.post({"inputs": "panic"}, {"inputs": "A fine film"})
    assert (first, second) == (500, 200)
    assert answer == model.ask("A fine film")


class AcceleratorError(RuntimeError):
    """An error with the name of torch's, which a machine without accelerator does not raise."""


class OutOfMemoryError(RuntimeError):
    """As above."""


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), OutOfMemory),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), OutOfMemory),
        (AcceleratorError("CUDA error: out of memory"), OutOfMemory),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling"), OutOfMemory),
        (MemoryError(), OutOfMemory),
        (RuntimeError("Exception from src/inference.cpp: std::bad_alloc"), OutOfMemory),
        (AcceleratorError("CUDA error: device-side assert triggered"), DeviceFailed),
        (AcceleratorError("CUDA error: an illegal memory access was encountered"), DeviceFailed),
        (RuntimeError("CUDA error: uncorrectable ECC error encountered"), DeviceFailed),
        (RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when"), DeviceFailed),
        (RuntimeError("HIP error: unspecified launch failure"), DeviceFailed),
        (AcceleratorError("CUDA error: invalid configuration argument"), InternalError),
        (RuntimeError("shapes cannot be multiplied"), InternalError),
        (ValueError("CUDA error: out of memory"), InternalError),
    ],
)
def test_an_error_of_a_library_is_one_of_memory_of_the_device_or_a_bug(
    error: Exception, kind: type[RequestError]
) -> None:
    def fail() -> None:
        raise error

    assert type(attempt(fail)) is kind


def test_the_error_of_one_item_of_many_costs_few_calls() -> None:
    calls = []

    def double(numbers: Sequence[int]) -> list[int]:
        calls.append(len(numbers))
        if 13 in numbers:
            raise BadRequest("13")
        return [2 * number for number in numbers]

    outcomes = attempt_all(double, range(64))
    assert [outcome for outcome in outcomes if not isinstance(outcome, RequestError)] == [
        2 * number for number in range(64) if number != 13
    ]
    assert isinstance(outcomes[13], BadRequest)
    assert calls[0] == 64 and len(calls) == 13


def test_an_item_that_may_not_be_repeated_keeps_its_error_and_others_run_again() -> None:
    def double(numbers: Sequence[int]) -> list[int]:
        if 13 in numbers:
            raise BadRequest("13")
        return [2 * number for number in numbers]

    first, second, third = attempt_all(double, [1, 13, 2], lambda number: number != 13)
    assert (first, third) == (2, 4)
    assert isinstance(second, BadRequest)


def test_a_failed_device_is_not_tried_again() -> None:
    calls = []

    def fail(numbers: Sequence[int]) -> list[int]:
        calls.append(numbers)
        raise AcceleratorError("CUDA error: device-side assert triggered")

    outcomes = attempt_all(fail, range(8))
    assert len(calls) == 1
    assert all(isinstance(outcome, DeviceFailed) for outcome in outcomes)
