"""Speech by OpenAI's own client and by Hugging Face's."""

from __future__ import annotations

import base64
from collections.abc import Callable
from io import BytesIO

import pytest
import soundfile

from hf_serve.handlers.media.audio import convert_wav
from tests.e2e.clients import run_client
from tests.http_front import front
from tests.serving import Served

MODE = "text_to_speech"
SETTINGS = {"seed": 4}
FORMATS = {"mp3": "MP3", "opus": "OGG", "flac": "FLAC", "wav": "WAV"}


@pytest.mark.nightly  # A process with the clients starts.
def test_speech_of_both_clients_is_that_of_plain_requests(served: Callable[..., Served]) -> None:
    model, text = served(MODE), "a red fox sings"
    with front({MODE: model}) as url:
        job = {"url": f"{url}/{MODE}", "text": text, "settings": SETTINGS}
        found = run_client("speech_client", **job, formats=list(FORMATS))

    wav = model.ask(text, **SETTINGS)["audio"]
    files = {kind: base64.b64decode(file) for kind, file in found["spoken"].items()}
    for kind, name in FORMATS.items():
        assert soundfile.info(BytesIO(files[kind])).format == name
    assert found["spoken"]["wav"] == found["streamed"] == wav
    flac = convert_wav(wav, "audio/flac")
    assert files["flac"] == flac
    assert "response_format aac" in found["refused"]
    assert [base64.b64decode(file) for file in found["of_hugging_face"]] == [flac, flac]
