"""The endpoint `audio/speech`: the speech of a text, as a file.

    {"input": "Hello.", "voice": "alloy", "response_format": "wav", "speed": 1.0}

Beside OpenAI's keys a body may have `seed`, `noise_scale` and `noise_scale_duration`. The file is
the whole response; there are no events.

https://platform.openai.com/docs/api-reference/audio/createSpeech
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field

from handlers.errors import BadRequest, Unprocessable
from handlers.http.request import HttpRequest
from handlers.http.response import HttpResponse
from handlers.media.audio import convert_wav, wav_to_pcm
from handlers.protocols.base import Exchange, check_not_explained, check_operation
from handlers.protocols.openai.keys import TABLES
from handlers.schemas.model_info import ModelInfo
from handlers.schemas.parameters import WholeNumbers, parse_body
from handlers.schemas.request import Request

EXTENSIONS = ("seed", "noise_scale", "noise_scale_duration")
# The types of the files by their names in a body.
CONTENT_TYPES: Mapping[str, str] = {
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": "audio/pcm",
}
# Samples without a header, which clients play at this rate.
PCM_RATE = 24_000


class Voice(WholeNumbers):
    """A voice as an object."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    id: str


class SpeechBody(WholeNumbers):
    """The body of `audio/speech`; unknown keys are ignored, and so are instructions."""

    model_config = ConfigDict(
        extra="ignore", strict=True, frozen=True, allow_inf_nan=False, protected_namespaces=()
    )

    model: str | None = None
    input: str
    voice: str | Voice | None = None
    response_format: Literal["mp3", "opus", "aac", "flac", "wav", "pcm"] | None = None
    speed: Annotated[float, Field(ge=0.25, le=4)] | None = None
    stream_format: Literal["audio", "sse"] | None = None
    seed: int | None = None
    noise_scale: float | None = None
    noise_scale_duration: float | None = None

    def check_supported(self) -> None:
        """Check that this server can do what the body asks for.

        Raises:
            RequestError: it cannot.
        """
        if self.response_format == "aac":
            raise BadRequest(
                "This server writes no AAC files; set response_format to mp3, opus, flac, wav or"
                " pcm."
            )
        if self.stream_format == "sse":
            raise Unprocessable("This server sends speech as a file; leave stream_format out.")

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of the text-to-speech task."""
        given = {name: getattr(self, name) for name in EXTENSIONS}
        given["voice"] = self.voice.id if isinstance(self.voice, Voice) else self.voice
        given["speaking_rate"] = self.speed
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True)
class SpeechContext:
    """What the endpoint needs to write a response."""

    endpoint: Speech
    body: SpeechBody


class Speech:
    """`audio/speech`: the speech of a text."""

    path: ClassVar[str] = "audio/speech"
    inputs_key: ClassVar[str] = "input"

    def __init__(self, model: ModelInfo) -> None:
        self.model = model

    def parse(self, http_request: HttpRequest) -> Exchange:
        """Parse a request.

        Raises:
            RequestError: it cannot be understood, or this model cannot do it.
        """
        check_operation(self.model, "speak")
        check_not_explained(http_request, self.path)
        http_request = TABLES[self.path].check(http_request)
        body = parse_body(SpeechBody, http_request.content)
        body.check_supported()
        return Exchange(
            http_request, [Request(body.input, body.parameters)], SpeechContext(self, body)
        )

    def write(self, exchange: Exchange, results: Sequence[Any]) -> HttpResponse:
        """Return the response, from the result of the request."""
        kind, wav = exchange.context.body.response_format or "mp3", results[0]["audio"]
        content_type = CONTENT_TYPES[kind]
        file = wav_to_pcm(wav, PCM_RATE) if kind == "pcm" else convert_wav(wav, content_type)
        return HttpResponse(file, content_type=content_type)
