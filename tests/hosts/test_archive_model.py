"""An archive's model checks itself after a request failed, and reports each batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hf_serve.handlers.errors import InternalError
from hf_serve.handlers.http.limits import BodyLimits
from hf_serve.handlers.http.response import HttpResponse
from hf_serve.handlers.telemetry.metrics import Meter
from hf_serve.hosts.archive_model import ArchiveModel
from hf_serve.hosts.archives import FOLDER_VARIABLE, open_archive

MODE = "sequence_classification"


@pytest.fixture
def reports() -> list[Meter]:
    return []


@pytest.fixture
def model(
    packed: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    reports: list[Meter],
) -> ArchiveModel:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    folder = open_archive(packed("pretrained", MODE)).folder
    limits = BodyLimits(1 << 20, 1 << 20)
    return ArchiveModel(folder, "fox", "1.0", limits, "cpu", lambda meter, _: reports.append(meter))


def ask(model: ArchiveModel, body: bytes) -> HttpResponse:
    responses: list[HttpResponse] = []
    incoming = model.incoming({"body": body}, {}, lambda response, _: responses.append(response))
    model.answer([incoming], model.deadline())
    (response,) = responses
    return response


def test_a_batch_is_reported(model: ArchiveModel, reports: list[Meter]) -> None:
    assert ask(model, b"A film.").status == 200
    assert [each.counts["requests"] for each in reports] == [1]


def test_a_model_that_fails_and_no_longer_answers_its_sample_needs_a_new_process(
    model: ArchiveModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> list[HttpResponse]:
        return [HttpResponse(b"", 500)]

    monkeypatch.setattr(model._dispatcher, "dispatch", fail)
    assert ask(model, b"A film.").status == 500
    assert not model.engine.device_failed  # The sample is answered.
    failure = InternalError(ValueError("broken"))
    monkeypatch.setattr(model.engine, "predict", lambda *_, **__: [failure])
    ask(model, b"A film.")
    assert model.engine.device_failed and model.has_failed


def test_a_model_whose_engine_has_ended_needs_a_new_process(
    model: ArchiveModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not model.has_failed
    monkeypatch.setattr(type(model.engine.model), "has_failed", True)
    assert model.has_failed
