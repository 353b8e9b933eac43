"""OpenAI's endpoints for audio: forms with files, formats of texts, and OpenAI's own client."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hf_serve.handlers.http.request import HttpRequest, distinct_names
from hf_serve.handlers.protocols.openai.audio import Part, subtitles
from hf_serve.handlers.telemetry.metrics import Meter
from tests import sounds
from tests.e2e.clients import run_client
from tests.http_front import front
from tests.sentences import Sentence
from tests.serving import Served, differences
from tests.sounds import BROKEN, FILES, SECONDS, TEXTS, file_of

MODE = "automatic_speech_recognition"
WHISPER = "WhisperForConditionalGeneration"
Form = dict[str, bytes | str]


@pytest.fixture(scope="module")
def whisper(tmp_path_factory: pytest.TempPathFactory) -> Served:
    return Served(sounds.write(tmp_path_factory.mktemp("whisper") / "model", WHISPER), MODE)


@pytest.fixture
def letters(served: Callable[..., Served]) -> Served:
    return served(MODE)


def post(model: Served, path: str, file: bytes = FILES[1], **fields: str) -> tuple[int, str, str]:
    """Send a form as TorchServe passes it; returns the status, the content type and the body."""
    names = {name.replace("granularities", "granularities[]"): fields[name] for name in fields}
    row = {"file": bytearray(file), "model": b"m", **{key: names[key].encode() for key in names}}
    headers = {"url_path": f"v1/audio/{path}", "file": {"content-type": "audio/wav"}}
    (answer,) = model.dispatcher.dispatch([HttpRequest(row, headers)], Meter())
    return answer.status, answer.content_type, answer.body.decode()


def test_a_form_gets_the_text_of_its_file(letters: Served, whisper: Served) -> None:
    for model in (letters, whisper):
        expected = model.ask(TEXTS[1])["text"]
        assert json.loads(post(model, "transcriptions")[2]) == {"text": expected}
        status, kind, body = post(model, "transcriptions", response_format="text")
        assert (status, kind, body) == (200, "text/plain; charset=utf-8", f"{expected}\n")


def test_a_body_of_json_may_have_the_file_in_base64(letters: Served) -> None:
    headers = {"url_path": "v1/audio/transcriptions"}
    ((status, answer),) = letters.post(
        HttpRequest({"body": {"file": TEXTS[1], "model": "m"}}, headers)
    )
    assert (status, answer) == (200, {"text": letters.ask(TEXTS[1])["text"]})


def test_whisper_has_segments_and_words_with_their_times(whisper: Served) -> None:
    _, _, body = post(whisper, "transcriptions", response_format="verbose_json", language="de")
    found = json.loads(body)
    expected = whisper.ask(TEXTS[1], language="de", return_timestamps=True)
    assert found["text"] == expected["text"]
    assert (found["task"], found["language"]) == ("transcribe", "de")
    assert found["duration"] == pytest.approx(SECONDS[1])
    assert [each["text"] for each in found["segments"]] == [
        each["text"] for each in expected["chunks"]
    ]
    _, _, body = post(
        whisper,
        "transcriptions",
        response_format="verbose_json",
        timestamp_granularities="word",
    )
    words = whisper.ask(TEXTS[1], return_timestamps="word")["chunks"]
    assert [each["word"] for each in json.loads(body)["words"]] == [
        each["text"].strip() for each in words
    ]


@pytest.mark.parametrize("granularities", ["segment", "word"])
def test_details_have_the_detected_language(
    whisper: Served, letters: Served, granularities: str
) -> None:
    details = partial(post, response_format="verbose_json", timestamp_granularities=granularities)
    files = FILES[1], file_of(np.zeros(6_400, np.float32))
    found = [json.loads(details(whisper, "transcriptions", each)[2]) for each in files]
    assert [each["language"] for each in found] == ["german", "english"]
    assert json.loads(details(letters, "transcriptions")[2])["language"] == ""


@pytest.mark.parametrize("name", ["timestamp_granularities[]", "timestamp_granularities"])
def test_a_field_that_comes_twice_asks_for_both(whisper: Served, name: str) -> None:
    names = distinct_names([name, name])
    twice = dict(zip(names, (b"word", b"segment"), strict=True))
    row = {"file": bytearray(FILES[1]), "response_format": b"verbose_json", **twice}
    headers = {"url_path": "v1/audio/transcriptions", "file": {"content-type": "audio/wav"}}
    ((status, answer),) = whisper.post(HttpRequest(row, headers))
    assert status == 200 and answer["words"] and answer["segments"]


def test_words_of_a_ctc_model_become_subtitles(letters: Served) -> None:
    words = letters.ask(TEXTS[3], return_timestamps="word")["chunks"]
    _, kind, body = post(letters, "transcriptions", FILES[3], response_format="vtt", language="en")
    assert kind == "text/vtt; charset=utf-8"
    assert body.startswith("WEBVTT\n\n00:00:0")
    texts = [line for line in body.splitlines()[2:] if line and "-->" not in line]
    assert " ".join(texts).split() == [each["text"] for each in words]
    assert post(letters, "transcriptions", FILES[3], response_format="srt")[2].startswith("1\n00:")


@pytest.mark.parametrize(
    ("characters", "seconds", "lines"), [(60, 7.0, 1), (61, 7.0, 2), (60, 7.5, 2)]
)
def test_words_share_a_line_of_60_characters_and_7_seconds(
    letters: Served, monkeypatch: pytest.MonkeyPatch, characters: int, seconds: float, lines: int
) -> None:
    words = [
        {"text": "a" * 29, "timestamp": (0.0, 1.0)},
        {"text": "b" * (characters - 30), "timestamp": (1.0, seconds)},
    ]
    answer = {"text": "", "chunks": words}
    monkeypatch.setattr(letters.engine, "predict", lambda requests, *_: [answer] * len(requests))
    _, _, body = post(letters, "transcriptions", FILES[3], response_format="srt")
    assert body.count("-->") == lines


def test_subtitles_are_those_of_the_formats() -> None:
    parts = [Part(" Good morning.", 0.0, 1.25), Part(" It is\n\nlate --> now.", 3_661.5, 3_662.0)]
    assert subtitles(parts, "srt") == [
        *("1", "00:00:00,000 --> 00:00:01,250", "Good morning.", ""),
        *("2", "01:01:01,500 --> 01:01:02,000", "It is late -> now."),
    ]
    assert subtitles(parts[:1], "vtt") == [
        *("WEBVTT", "", "00:00:00.000 --> 00:00:01.250", "Good morning.")
    ]


def test_a_translation_is_in_english(whisper: Served, letters: Served) -> None:
    expected = whisper.ask(TEXTS[1], task="translate")["text"]
    assert json.loads(post(whisper, "translations", temperature="0")[2]) == {"text": expected}
    assert post(letters, "translations")[0] == 422


@pytest.mark.parametrize(
    ("file", "fields", "status", "facts"),
    [
        (BROKEN, {}, 400, []),
        (FILES[0], {"response_format": "pdf"}, 400, ["response_format"]),
        (FILES[0], {"temperature": "hot"}, 400, ["temperature"]),
        (FILES[0], {"language": "klingon"}, 400, ["language"]),
        (FILES[0], {"stream": "true"}, 422, ["stream"]),
        (FILES[0], {"timestamp_granularities": "letter"}, 400, ["timestamp_granularities"]),
        (
            FILES[0],
            {"timestamp_granularities": "word"},
            400,
            ["timestamp_granularities", "verbose_json"],
        ),
        (
            FILES[0],
            {"timestamp_granularities": "word", "response_format": "text"},
            400,
            ["timestamp_granularities", "verbose_json"],
        ),
        (b"", {}, 400, []),
    ],
)
def test_a_mistake_has_openais_error(
    whisper: Served, file: bytes, fields: dict[str, str], status: int, facts: list[str]
) -> None:
    found, _, body = post(whisper, "transcriptions", file, **fields)
    assert found == status
    assert json.loads(body)["error"]["message"] == Sentence(*facts)


def test_a_model_of_another_mode_refuses_the_path(served: Callable[..., Served]) -> None:
    status, _, body = post(served("audio_classification"), "transcriptions")
    assert status == 422
    assert "it recognizes no speech" in json.loads(body)["error"]["message"]


@pytest.mark.nightly  # A process with the clients starts.
def test_openais_client_transcribes_and_translates(
    whisper: Served, letters: Served, tmp_path: Path
) -> None:
    path, broken = tmp_path / "sound.wav", tmp_path / "broken.wav"
    path.write_bytes(FILES[1])
    broken.write_bytes(BROKEN)
    detailed = {"response_format": "verbose_json", "timestamp_granularities": ["word"]}
    with front({"whisper": whisper, "letters": letters}) as url:
        calls: list[tuple[str, str, dict[str, Any]]] = [
            ("whisper", "transcriptions", {"language": "en", "temperature": 0.0}),
            ("whisper", "transcriptions", detailed),
            ("letters", "transcriptions", {"response_format": "srt"}),
            ("whisper", "translations", {"prompt": "a b"}),
            ("whisper", "transcriptions", {"file": str(broken)}),
        ]
        found = run_client(
            "openai_audio_client",
            calls=[
                {
                    "base_url": f"{url}/{name}/1.0/v1",
                    "method": method,
                    "arguments": {"file": str(path), **arguments},
                }
                for name, method, arguments in calls
            ],
        )
    assert found[0] == {
        "class": "Transcription",
        "text": whisper.ask(TEXTS[1], language="en")["text"],
    }
    words = whisper.ask(TEXTS[1], return_timestamps="word")
    assert found[1]["class"] == "TranscriptionVerbose"
    assert [each["word"] for each in found[1]["words"]] == words["text"].split()
    assert found[2].startswith("1\n00:00:0")
    assert not differences(
        found[3]["text"], whisper.ask(TEXTS[1], task="translate", prompt="a b")["text"], 0
    )
    assert found[4]["status"] == 400
