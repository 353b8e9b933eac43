"""What every mode that reads audio does: files as bodies, hostile files, batches by shape."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hf_serve.handlers import tasks
from hf_serve.handlers.config.handler_section import modes
from hf_serve.handlers.errors import WrongCheckpoint, WrongConfig
from hf_serve.handlers.http.request import HttpRequest
from hf_serve.handlers.types.model_info import AUDIO_COLUMN
from tests import tiny
from tests.handlers.media.test_audio import HOURS, wav
from tests.images import bytes_tensor, raw
from tests.sentences import Sentence, refused
from tests.serving import Served, differences
from tests.sounds import BROKEN, FILES, TEXTS, encoded, file_of, sound_of

AUDIO_MODES = [
    mode for mode in modes() if AUDIO_COLUMN in tasks.get(mode).description.wire.input_columns
]
CLOSE = 1e-4


@pytest.fixture(params=AUDIO_MODES)
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def model(served: Callable[..., Served], mode: str) -> Served:
    return served(mode)


@pytest.mark.parametrize("content_type", ["", "audio/wav", "application/octet-stream", "audio/*"])
def test_the_body_may_be_the_file(model: Served, content_type: str) -> None:
    ((status, answer),) = model.post(raw(FILES[1], content_type))
    assert status == 200, answer
    assert not differences(answer, model.ask(TEXTS[1]), 1e-6)


def test_a_form_may_have_the_file_and_parameters(model: Served) -> None:
    expected = model.ask(TEXTS[0])
    for name in ("data", "audio", "inputs"):
        row = {name: bytearray(FILES[0]), "parameters": bytearray(b"{}")}
        ((status, answer),) = model.post(HttpRequest(row, {}))
        assert status == 200, answer
        assert not differences(answer, expected, 1e-6)


def test_a_tensor_may_have_the_bytes_of_files(model: Served) -> None:
    ((status, answer),) = model.post(bytes_tensor("audio", FILES))
    assert status == 200, answer
    found = [json.loads(each) for each in answer["outputs"][0]["data"]]
    assert not differences(found, model.ask(TEXTS), CLOSE)


@pytest.mark.parametrize(
    ("file", "status", "facts"),
    [
        (BROKEN, 400, ["audio"]),
        (b"\x89PNG\r\n\x1a\n" + bytes(90), 400, ["audio"]),
        (HOURS, 413, ["600"]),
        (wav(b""), 400, ["audio"]),
        (wav(bytes(6_400), channels=64), 422, ["64"]),
        (wav(bytes(6_400), rate=2**31 - 1), 422, ["2,147,483,647"]),
        (file_of(np.full(8_000, np.nan, np.float32)), 400, []),
        (file_of(sound_of(1, 0.05)), 422, ["0.050"]),
    ],
)
def test_a_hostile_file_fails_alone(
    model: Served, file: bytes, status: int, facts: list[str]
) -> None:
    good = [model.ask(text) for text in TEXTS[:2]]
    first, wrong, second = model.post(raw(FILES[0]), raw(file), {"inputs": TEXTS[1]})
    assert (first[0], wrong[0], second[0]) == (200, status, 200)
    assert wrong[1]["message"] == Sentence(*facts)
    assert not differences([first[1], second[1]], good, CLOSE)
    found = model.ask([TEXTS[0], encoded(file), TEXTS[1]])
    assert found[1]["code"] == status
    assert not differences([found[0], found[2]], good, CLOSE)


def test_long_audio_and_large_files_are_refused_with_the_limit(
    served: Callable[..., Served], mode: str
) -> None:
    model = served(mode, max_audio_seconds=0.5, max_audio_bytes=30_000)
    assert model.refuse(TEXTS[1])[0] == 413
    longer = encoded(file_of(sound_of(1, 0.6), subtype="PCM_16"))
    assert model.refuse(longer) == (
        413,
        Sentence("0.5"),
    )
    status, message = model.refuse(encoded(bytes(30_001)))
    assert (status, "30,001 bytes, and this model takes 30,000" in message) == (413, True)


def test_rows_of_equal_shapes_share_a_forward(tmp_path: Path, mode: str) -> None:
    model = Served(tiny.write(tmp_path / "model", mode), mode)
    counted: list[int] = []
    original = model.engine.model.forward

    def forward(batch: Any) -> Any:
        counted.append(len(next(iter(batch.values()))))
        return original(batch)

    model.engine.model.forward = forward  # type: ignore[method-assign]
    model.ask(TEXTS)
    assert sorted(counted) == [1, 1, 2]


def test_silence_is_answered(model: Served) -> None:
    assert model.ask(encoded(file_of(np.zeros(8_000, np.float32))))


def test_a_checkpoint_without_its_feature_extractor_is_refused(tmp_path: Path, mode: str) -> None:
    folder = tiny.write(tmp_path / "model", mode)
    (folder / "preprocessor_config.json").unlink()
    with refused(WrongCheckpoint, "preprocessor_config.json"):
        Served(folder, mode)


def test_a_missing_package_is_named(
    checkpoint: Callable[..., Path], mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "soxr", None)
    with refused(WrongConfig, "soxr", "pip install soundfile soxr"):
        Served(checkpoint(mode), mode)
