"""The endpoints `audio/transcriptions` and `audio/translations`: speech to text.

A form has the audio in its field `file`; JSON may have it in base64. The response is JSON, the text
alone, or subtitles.

https://platform.openai.com/docs/api-reference/audio
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, ConfigDict, Field, SkipValidation

from ...errors import BadRequest, Unprocessable
from ...http.request import HttpRequest
from ...http.response import JSON, HttpResponse, encode_json
from ...media.audio import convert_wav, seconds_of, wav_to_pcm
from ...types.model_info import ModelInfo
from ...types.parameters import WholeNumbers
from ...types.request import Request
from ..base import KeyTable, ParsedRequest, Route, honoured, ignored, refused
from .endpoint import Body, Call, Endpoint, adapter_parameters
from .errors import KeyNeedsAnother
from .types import DetailedTranscription, OpenAIError, Transcription

Format = Literal["json", "text", "srt", "verbose_json", "vtt"]
Granularity = Literal["segment", "word"]
GRANULARITIES = "timestamp_granularities"
# The name of a list in a form.
IN_FORMS = f"{GRANULARITIES}[]"
TEXT = "text/plain; charset=utf-8"
SUBTITLES: Mapping[str, str] = {"srt": TEXT, "vtt": "text/vtt; charset=utf-8"}
# Keys that other servers have for both endpoints.
KEYS = {
    **ignored("stream_include_usage", "stream_continuous_usage_stats"),
    **refused(
        seed=[],
        top_p=["1", "1.0", 1],
        top_k=["0", "-1", 0, -1],
        min_p=["0", "0.0", 0],
        frequency_penalty=["0", "0.0", 0],
        presence_penalty=["0", "0.0", 0],
        repetition_penalty=["1", "1.0", 1],
        max_completion_tokens=[],
        vllm_xargs=[],
        hotwords=[],
        use_beam_search=["false", False],
        n=["1", 1],
        length_penalty=["1", "1.0", 1],
    ),
}
# The maximum characters and seconds of a line of subtitles, which words are joined to.
LINE_CHARACTERS, LINE_SECONDS = 60, 7.0


def _number(value: Any) -> Any:
    """Return a number that a form has as a text; other values as they are."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _flag(value: Any) -> Any:
    """Return a truth value that a form has as a text; other values as they are."""
    return {"true": True, "false": False}.get(value, value) if isinstance(value, str) else value


def _list(value: Any) -> Any:
    """Return a list of one value where a form has it alone."""
    return [value] if isinstance(value, str) else value


class TranslationBody(Body):
    """The body of `audio/translations`."""

    file: SkipValidation[str]
    prompt: str | None = None
    response_format: Format = "json"
    temperature: Annotated[float, Field(ge=0, le=1), BeforeValidator(_number)] | None = None

    @property
    def granularities(self) -> Sequence[Granularity]:
        """What the response has the times of."""
        return ("segment",)

    @property
    def has_times(self) -> bool:
        """Whether the response has times."""
        return self.response_format in (*SUBTITLES, "verbose_json")


class TranscriptionBody(TranslationBody):
    """The body of `audio/transcriptions`."""

    language: str | None = None
    stream: Annotated[bool, BeforeValidator(_flag)] | None = None
    timestamp_granularities: Annotated[
        list[Granularity], Field(max_length=2), BeforeValidator(_list)
    ] = Field(default=["segment"])

    @property
    def granularities(self) -> Sequence[Granularity]:
        return self.timestamp_granularities


@dataclass(frozen=True)
class Part:
    """A part of a text, and where it begins and ends, in seconds."""

    text: str
    start: float
    end: float


class Transcriptions(Endpoint[TranslationBody]):
    """`audio/transcriptions`: the text of an audio file."""

    route = Route(
        "v1/audio/transcriptions",
        name="transcribe",
        server="OpenAI",
        summary="Return the text of an audio file.",
        response=Transcription | DetailedTranscription,
        error=OpenAIError,
        abilities=("transcribe",),
        body=TranscriptionBody,
        keys=KeyTable.of(
            TranscriptionBody,
            KEYS,
            honoured(IN_FORMS),
            refused(
                **{
                    "include": [],
                    "include[]": [],
                    "chunking_strategy": ["auto"],
                    "keywords": [],
                    "languages": [],
                    "known_speaker_names": [],
                    "known_speaker_names[]": [],
                    "known_speaker_references": [],
                    "known_speaker_references[]": [],
                    "to_language": [],
                }
            ),
        ),
        examples=lambda sample: {"one": {"file": sample["inputs"]}},
        description="A form has the audio in its field `file`; JSON has it in base64.",
        body_types=(JSON, "multipart/form-data"),
        other_types={kind.partition(";")[0]: str for kind in SUBTITLES.values()},
    )
    inputs_key = "file"
    task: ClassVar[str | None] = None

    def __init__(self, model: ModelInfo) -> None:
        super().__init__(model)
        self._has_letters = model.architecture.endswith("ForCTC")

    def read_body(self, content: Any) -> TranslationBody:
        if not isinstance(content, dict):
            raise BadRequest("file is missing; send a form with the audio in it.")
        fields = {GRANULARITIES if name == IN_FORMS else name: content[name] for name in content}
        body = super().read_body(fields)
        if getattr(body, "stream", None):
            raise Unprocessable("stream cannot be done by this server; leave it out.")
        if GRANULARITIES in fields and not body.has_times:
            # Subtitles of words are an extension of this server.
            raise KeyNeedsAnother(GRANULARITIES, "response_format: verbose_json")
        return body

    def parsed_request(self, http_request: HttpRequest, body: TranslationBody) -> ParsedRequest:
        adapter_parameters(self.model, body.model)
        request = Request(body.file, self._parameters(body))
        return ParsedRequest(http_request, [request], Call(self, body))

    def write(self, parsed: ParsedRequest, results: Sequence[Any]) -> HttpResponse:
        body, (result,) = parsed.context.body, results
        if body.response_format == "text":
            return HttpResponse(f"{result['text']}\n".encode(), content_type=TEXT)
        if body.response_format in SUBTITLES:
            lines = "\n".join(subtitles(self._segments(result, body), body.response_format))
            return HttpResponse(f"{lines}\n".encode(), content_type=SUBTITLES[body.response_format])
        if body.response_format == "json":
            transcription: Transcription = {"text": result["text"]}
            return HttpResponse(encode_json(transcription))
        return HttpResponse(encode_json(self._details(parsed.requests[0], body, result)))

    def _parameters(self, body: TranslationBody) -> dict[str, Any]:
        """Return the parameters of speech recognition; a CTC model takes no hints."""
        given: dict[str, Any] = {}
        if body.has_times:
            by_word = self._has_letters or "word" in body.granularities
            given["return_timestamps"] = "word" if by_word else True
        if not self._has_letters:
            named = {"language", "prompt"} & type(body).model_fields.keys()
            given |= {name: value for name in named if (value := getattr(body, name))}
            if body.response_format == "verbose_json":
                given["return_language"] = True
        if body.temperature:
            given["temperature"] = body.temperature
        return given if self.task is None else {**given, "task": self.task}

    def _details(
        self, request: Request, body: Any, result: Mapping[str, Any]
    ) -> DetailedTranscription:
        chunks = result.get("chunks", ())
        details: DetailedTranscription = {
            "task": self.task or "transcribe",
            "language": self._language(body, result),
            "duration": seconds_of(request.inputs)
            or max((each.end for each in _parts(chunks)), default=0.0),
            "text": result["text"],
        }
        if "segment" in body.granularities:
            details["segments"] = [
                {"id": number, "start": each.start, "end": each.end, "text": each.text}
                for number, each in enumerate(self._segments(result, body))
            ]
        if "word" in body.granularities:
            details["words"] = [
                {"word": each.text.strip(), "start": each.start, "end": each.end}
                for each in _parts(chunks)
            ]
        return details

    def _language(self, body: Any, result: Mapping[str, Any]) -> str:
        """Return the language of a request, or the name of the one that the model detected."""
        return "english" if self.task else body.language or result.get("language") or ""

    def _segments(self, result: Mapping[str, Any], body: TranslationBody) -> list[Part]:
        parts = _parts(result.get("chunks", ()))
        return _lines(parts) if self._has_letters or "word" in body.granularities else parts


class Translations(Transcriptions):
    """`audio/translations`: the text of an audio file in English."""

    route = replace(
        Transcriptions.route,
        path="v1/audio/translations",
        name="translate",
        summary="Return its text in English.",
        body=TranslationBody,
        keys=KeyTable.of(
            TranslationBody,
            KEYS,
            refused(language=[], to_language=["en", "english"], stream=[False, "false"]),
        ),
        examples=lambda _: {},
    )
    task = "translate"


def subtitles(parts: Sequence[Part], kind: str) -> list[str]:
    """Return the lines of subtitles: SubRip (`srt`) or WebVTT (`vtt`)."""
    mark = "," if kind == "srt" else "."
    lines = ["WEBVTT", ""] if kind == "vtt" else []
    for number, part in enumerate(parts, 1):
        lines += [str(number)] if kind == "srt" else []
        # A blank line or an arrow in a text would end the entry.
        text = " ".join(part.text.split()).replace("-->", "->")
        lines += [f"{_clock(part.start, mark)} --> {_clock(part.end, mark)}", text, ""]
    return lines[:-1]


def _clock(seconds: float, mark: str) -> str:
    thousandths = round(seconds * 1000)
    hours, minutes = thousandths // 3_600_000, thousandths // 60_000 % 60
    return f"{hours:02}:{minutes:02}:{thousandths // 1000 % 60:02}{mark}{thousandths % 1000:03}"


def _parts(chunks: Sequence[Mapping[str, Any]]) -> list[Part]:
    """Return the parts of a text; unknown times are taken from the neighbouring parts."""
    parts: list[Part] = []
    for chunk in chunks:
        start, end = chunk.get("timestamp") or (None, None)
        begun = start if start is not None else (parts[-1].end if parts else 0.0)
        parts.append(Part(chunk["text"], begun, end if end is not None else begun))
    return parts


def _lines(words: Sequence[Part]) -> list[Part]:
    """Return words joined to lines."""
    lines: list[Part] = []
    for word in words:
        line = lines[-1] if lines else None
        joined = f"{line.text} {word.text.strip()}" if line else ""
        fits = len(joined) <= LINE_CHARACTERS
        if line and fits and word.end - line.start <= LINE_SECONDS:
            lines[-1] = Part(joined, line.start, word.end)
        else:
            lines.append(Part(word.text.strip(), word.start, word.end))
    return lines


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
        if self.response_format == "aac":
            raise BadRequest(
                "response_format aac cannot be done by this server; set it to mp3, opus, flac, wav"
                " or pcm."
            )
        if self.stream_format == "sse":
            raise Unprocessable("stream_format sse cannot be done by this server; leave it out.")

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
        return ParsedRequest(http_request, [Request(body.input, body.parameters)], Call(self, body))

    def write(self, parsed: ParsedRequest, results: Sequence[Any]) -> HttpResponse:
        kind, wav = parsed.context.body.response_format or "mp3", results[0]["audio"]
        content_type = CONTENT_TYPES[kind]
        file = wav_to_pcm(wav, PCM_RATE) if kind == "pcm" else convert_wav(wav, content_type)
        return HttpResponse(file, content_type=content_type)
