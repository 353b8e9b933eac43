"""The endpoint `audio/speech`: the speech of a text, as a file.

    {"input": "Hello.", "voice": "alloy", "response_format": "wav", "speed": 1.0}

Beside OpenAI's keys a body may have `seed`, `noise_scale` and `noise_scale_duration`. The file is
the whole response; there are no events.

https://platform.openai.com/docs/api-reference/audio/createSpeech
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from handlers.errors import BadRequest, Unprocessable
from handlers.http.request import HttpRequest
from handlers.http.response import HttpResponse
from handlers.media.audio import convert_wav, wav_to_pcm
from handlers.protocols.base import ParsedRequest
from handlers.protocols.keys import KeyTable, ignored, refused
from handlers.protocols.openai.endpoint import Body, Call, Endpoint
from handlers.protocols.openai.types import OpenAIError
from handlers.protocols.routes import Route
from handlers.types.parameters import WholeNumbers
from handlers.types.request import Request

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


class SpeechBody(Body):
    """The body of `audio/speech`."""

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


class Speech(Endpoint[SpeechBody]):
    """`audio/speech`: the speech of a text."""

    route = Route(
        "v1/audio/speech",
        name="speak",
        server="OpenAI",
        summary="Return the speech of a text as a file.",
        response=None,
        error=OpenAIError,
        abilities=("speak",),
        body=SpeechBody,
        keys=KeyTable.of(
            SpeechBody,
            # A hint to OpenAI's own models.
            ignored("instructions", "user"),
            refused(stream=False),
        ),
        examples=lambda sample: {
            kind: {"input": sample["inputs"], "voice": "alloy", "response_format": kind, "seed": 1}
            for kind in CONTENT_TYPES
        },
        other_types=dict.fromkeys(CONTENT_TYPES.values(), bytes),
    )
    inputs_key = "input"

    def parsed_request(self, http_request: HttpRequest, body: SpeechBody) -> ParsedRequest:
        body.check_supported()
        return ParsedRequest(http_request, [Request(body.input, body.parameters)], Call(self, body))

    def write(self, parsed: ParsedRequest, results: Sequence[Any]) -> HttpResponse:
        kind, wav = parsed.context.body.response_format or "mp3", results[0]["audio"]
        content_type = CONTENT_TYPES[kind]
        file = wav_to_pcm(wav, PCM_RATE) if kind == "pcm" else convert_wav(wav, content_type)
        return HttpResponse(file, content_type=content_type)
