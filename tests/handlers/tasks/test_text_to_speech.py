"""Text to speech: the waveforms of the pipeline, files, speakers, limits and time."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import soundfile
from transformers import BarkConfig, VitsConfig, pipeline, set_seed

from hf_serve.handlers.errors import DeadlineExceeded, WrongCheckpoint, WrongConfig
from hf_serve.handlers.http.request import HttpRequest
from hf_serve.handlers.http.response import HttpResponse
from hf_serve.handlers.media.audio import wav_in_base64
from hf_serve.handlers.process.deadline import Deadline
from hf_serve.handlers.telemetry.metrics import Meter
from hf_serve.handlers.types.request import Request
from tests import tiny_vits
from tests.modes.text_to_speech import INPUTS
from tests.sentences import Sentence, refused
from tests.serving import Served

MODE = "text_to_speech"
SPEAKERS = {"num_speakers": 3, "speaker_embedding_size": 8}
SETTINGS: list[dict[str, Any]] = [
    {"seed": 5},
    {"seed": 6, "speaking_rate": 1.5, "noise_scale": 0.2, "noise_scale_duration": 0.0},
]
# Two runs of the same model differ by the rounding of a sample to 16 bits.
ROUNDING = 2 / 2**15
Speak = Callable[..., Any]


@pytest.fixture(scope="module")
def model(served: Callable[..., Served]) -> Served:
    return served(MODE)


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with several speakers."""
    return tiny_vits.write(tmp_path_factory.mktemp("several") / "model", SPEAKERS)


def reference(folder: Path) -> Speak:
    """Return transformers' pipeline as a function of a text, its seed and its settings."""
    loaded = pipeline("text-to-speech", model=str(folder), device="cpu")
    own = {name: getattr(loaded.model, name) for name in ("noise_scale", "noise_scale_duration")}

    def speak(text: str, *, seed: int, **settings: Any) -> dict[str, Any]:
        for name, value in own.items():
            setattr(loaded.model, name, settings.pop(name, value))
        set_seed(seed)
        made = loaded(text, forward_params=settings)
        audio = wav_in_base64(made["audio"], made["sampling_rate"])
        return {"audio": audio, "sampling_rate": made["sampling_rate"], "seed": seed}

    return speak


def read(file: bytes) -> tuple[npt.NDArray[np.float32], int]:
    samples, rate = soundfile.read(BytesIO(file), dtype="float32")
    return samples, rate


def same_speech(found: Mapping[str, Any], expected: Mapping[str, Any]) -> bool:
    """Return whether two results have the same samples, rate and seed."""
    files = (base64.b64decode(each["audio"]) for each in (found, expected))
    return found["seed"] == expected["seed"] and same_samples(*files)


def same_samples(found: bytes, expected: bytes) -> bool:
    """Return whether two files have the same samples and rate."""
    (one, rate), (other, other_rate) = read(found), read(expected)
    same_shape = (rate, one.shape) == (other_rate, other.shape)
    return same_shape and bool(np.abs(one - other).max() <= ROUNDING)


def respond(model: Served, body: Any, **headers: str) -> HttpResponse:
    (response,) = model.dispatcher.dispatch([HttpRequest({"body": body}, headers)], Meter())
    return response


def speak_openai(model: Served, **body: Any) -> HttpResponse:
    return respond(model, {"input": "a fox", "seed": 3, **body}, url_path="v1/audio/speech")


def test_speech_is_that_of_the_pipeline_alone_and_in_a_batch_with_a_broken_request(
    model: Served, checkpoint: Callable[..., Path]
) -> None:
    speak = reference(checkpoint(MODE))
    asked = [(text, given) for given in SETTINGS for text in INPUTS]
    bodies: list[Any] = [{"inputs": text, "parameters": given} for text, given in asked]
    replies = model.post(*bodies[:3], {"inputs": "北京"}, *bodies[3:])
    assert replies.pop(3)[0] == 422
    for (text, given), body, (status, speech) in zip(asked, bodies, replies, strict=True):
        assert status == 200
        assert same_speech(speech, speak(text, **given))
        ((_, alone),) = model.post(body)
        assert same_speech(speech, alone)


def test_speakers_are_those_of_the_pipeline_by_number_and_by_name(several: Path) -> None:
    speak = reference(several)
    model = Served(several, MODE, voices={"alloy": 2})
    without, *found = [
        model.ask("a fox", **speaker)
        for speaker in ({}, {"speaker_id": 1}, {"speaker_id": 2}, {"voice": "1"})
    ]
    assert same_speech(without, speak("a fox", seed=3))
    first, second = (speak("a fox", seed=3, speaker_id=number) for number in (1, 2))
    assert all(map(same_speech, found, [first, second, first]))
    assert not same_speech(first, second)
    assert same_speech(model.ask("a fox", voice="alloy"), second)


def test_without_a_seed_the_result_has_the_one_that_gives_the_same_speech(model: Served) -> None:
    first, second = (model.ask("a fox", seed=None) for _ in range(2))
    assert first["seed"] != second["seed"]
    assert same_speech(model.ask("a fox", seed=first["seed"]), first)


@pytest.mark.parametrize(
    ("inputs", "parameters", "status", "facts"),
    [
        ("", {}, 400, ["inputs"]),
        (5, {}, 400, []),
        ("北京", {}, 422, []),
        ("x" * 4_097, {}, 413, ["4,097"]),
        ("x" * 2_000, {}, 413, ["4,001"]),
        ("a fox " * 90, {"speaking_rate": 0.1}, 413, ["60"]),
        ("a fox", {"speaker_id": 0}, 422, []),
        ("a fox", {"speaker_id": 0, "voice": "0"}, 400, []),
        ("a fox", {"speaking_rate": 0}, 400, ["speaking_rate"]),
    ],
)
def test_what_the_model_does_not_speak_is_refused(
    model: Served, inputs: Any, parameters: dict[str, Any], status: int, facts: list[str]
) -> None:
    found, sentence = model.refuse(inputs, **parameters)
    assert (found, sentence) == (status, Sentence(*facts))


def test_a_speaker_that_is_not_there_is_refused(several: Path) -> None:
    model = Served(several, MODE, voices={"alloy": 2})
    assert model.refuse("a fox", speaker_id=3)[0] == 422
    assert model.refuse("a fox", voice="echo") == (
        422,
        Sentence("echo", "alloy", 0, 2),
    )
    with refused(WrongConfig, "voices", "echo", 3):
        Served(several, MODE, voices={"echo": 3})


def test_a_letter_beyond_the_vocabulary_is_refused(tmp_path: Path) -> None:
    folder = tiny_vits.write(tmp_path)
    tiny_vits.write_tokenizer(folder, normalize=False)
    model = Served(folder, MODE)
    assert model.ask("fox")
    assert model.refuse("fox!") == (
        422,
        Sentence("inputs"),
    )


def test_settings_of_a_request_change_no_other_request(model: Served) -> None:
    alone = model.ask("a fox")
    assert model.ask("a fox", noise_scale=0.1, speaking_rate=1.5) != alone
    model.refuse("a fox " * 90, speaking_rate=0.1)
    assert same_speech(model.ask("a fox"), alone)


def test_no_text_is_spoken_after_the_deadline(model: Served) -> None:
    deadline = Deadline(1000)
    deadline.expire()
    (late,) = model.engine.predict([Request("a fox")], deadline=deadline)
    assert isinstance(late, DeadlineExceeded)


def test_other_families_and_missing_packages_are_refused_at_load(tmp_path: Path) -> None:
    BarkConfig(architectures=["BarkModel"]).save_pretrained(tmp_path)
    with refused(WrongCheckpoint, "model_type", "bark"):
        Served(tmp_path, MODE)
    folder = tiny_vits.write(tmp_path / "model")
    tiny_vits.write_tokenizer(folder, phonemize=True)
    with refused(WrongConfig, "phonemize", "phonemizer"):
        Served(folder, MODE)


@pytest.mark.parametrize(
    ("headers", "kind", "format_", "subtype"),
    [
        ({"accept": "audio/wav"}, "audio/wav", "WAV", "PCM_16"),
        ({"accept": "audio/*"}, "audio/wav", "WAV", "PCM_16"),
        ({"accept": "audio/flac"}, "audio/flac", "FLAC", "PCM_16"),
        ({"accept": "text/html, audio/mpeg;q=0.5"}, "audio/mpeg", "MP3", "MPEG_LAYER_III"),
        ({"accept": "audio/ogg"}, "audio/ogg", "OGG", "OPUS"),
        ({"user-agent": "unknown/None; hf_hub/1.0"}, "audio/flac", "FLAC", "PCM_16"),
    ],
)
def test_the_response_is_a_file_where_the_client_prefers_one(
    model: Served, headers: dict[str, str], kind: str, format_: str, subtype: str
) -> None:
    response = respond(model, {"inputs": "a fox"}, **headers)
    assert (response.status, response.content_type) == (200, kind)
    info = soundfile.info(BytesIO(response.body))
    assert (info.format, info.subtype, info.samplerate) == (format_, subtype, tiny_vits.RATE)
    if subtype == "PCM_16":
        assert same_samples(response.body, base64.b64decode(model.ask("a fox")["audio"]))


def test_json_that_a_client_of_the_hub_accepts_stays_json(model: Served) -> None:
    agent = {"user-agent": "unknown/None; hf_hub/1.0"}
    response = respond(model, {"inputs": "a fox"}, accept="application/json", **agent)
    assert same_speech(json.loads(response.body), model.ask("a fox"))
    assert len(json.loads(respond(model, {"inputs": ["a", "b"]}, **agent).body)) == 2


def test_several_texts_are_no_file(model: Served) -> None:
    response = respond(model, {"inputs": ["a fox", "a bear"]}, accept="audio/wav")
    assert response.status == 422
    assert b"is one file, and the result has 2" in response.body


@pytest.mark.parametrize(
    ("name", "kind", "format_"),
    [
        ("mp3", "audio/mpeg", "MP3"),
        ("opus", "audio/ogg", "OGG"),
        ("flac", "audio/flac", "FLAC"),
        ("wav", "audio/wav", "WAV"),
    ],
)
def test_openai_speech_is_a_file_of_the_format(
    model: Served, name: str, kind: str, format_: str
) -> None:
    response = speak_openai(model, voice="alloy", response_format=name, speed=1.5)
    assert (response.status, response.content_type) == (200, kind)
    assert soundfile.info(BytesIO(response.body)).format == format_
    if name == "wav":
        expected = model.ask("a fox", speaking_rate=1.5)["audio"]
        assert same_samples(response.body, base64.b64decode(expected))


def test_openai_samples_have_24_khz(model: Served) -> None:
    response = speak_openai(model, voice="alloy", response_format="pcm")
    assert response.content_type == "audio/pcm"
    samples, rate = read(base64.b64decode(model.ask("a fox")["audio"]))
    assert len(response.body) == 2 * len(samples) * 24_000 // rate


def test_openai_speech_is_mp3_without_a_format_and_its_voice_a_speaker(several: Path) -> None:
    model = Served(several, MODE, voices={"alloy": 2})
    assert speak_openai(model, voice="alloy").content_type == "audio/mpeg"
    found = speak_openai(model, voice={"id": "alloy"}, response_format="wav").body
    expected = model.ask("a fox", speaker_id=2)["audio"]
    assert same_samples(found, base64.b64decode(expected))


@pytest.mark.parametrize(
    ("more", "status", "facts"),
    [
        ({"response_format": "aac"}, 400, ["aac", "response_format"]),
        ({"response_format": "doc"}, 400, ["response_format"]),
        ({"speed": 9}, 400, ["speed"]),
        ({"stream_format": "sse"}, 422, ["stream_format"]),
        ({"input": ""}, 400, []),
    ],
)
def test_what_openai_has_and_this_server_has_not_is_refused(
    model: Served, more: dict[str, Any], status: int, facts: list[str]
) -> None:
    response = speak_openai(model, **{"voice": "alloy", **more})
    sentence = json.loads(response.body)["error"]["message"]
    assert (response.status, sentence) == (status, Sentence(*facts))


def test_another_model_speaks_no_texts(served: Callable[..., Served]) -> None:
    response = speak_openai(served("fill_mask"), voice="alloy")
    assert response.status == 422
    assert b"speaks no texts" in response.body


def test_a_model_whose_durations_are_not_random_speaks_as_the_pipeline(tmp_path: Path) -> None:
    folder = tiny_vits.write(tmp_path, {"use_stochastic_duration_prediction": False})
    assert not VitsConfig.from_pretrained(folder).use_stochastic_duration_prediction
    assert same_speech(Served(folder, MODE).ask("a fox"), reference(folder)("a fox", seed=3))


def test_a_text_may_have_as_many_tokens_as_the_limit(
    model: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    task: Any = model.engine.task
    count = len(task.tokenizer("a fox")["input_ids"])
    monkeypatch.setattr(task, "max_tokens", count)
    assert model.post({"inputs": "a fox"})[0][0] == 200
    monkeypatch.setattr(task, "max_tokens", count - 1)
    assert model.refuse("a fox")[0] == 413
