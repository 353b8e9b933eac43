"""The operations of OpenAI's API for audio: speech to text, and text to speech."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from typing_extensions import TypedDict

from handlers import tasks
from handlers.http.response import JSON
from handlers.protocols.openai.audio import SUBTITLES, TranscriptionBody, TranslationBody
from handlers.protocols.openai.speech import CONTENT_TYPES, SpeechBody
from scripts.openapi import openai
from scripts.openapi.operation import Body, Operation
from scripts.openapi.shapes import TEXT, Schema, any_of, ref

FORM = "multipart/form-data"
BELOW = "/predictions/{model}/{version}/v1/"
AS_A_FORM = "A form has the audio in its field `file`; JSON has it in base64."


class TranscribedSegment(TypedDict):
    """A segment of a text, and where it begins and ends, in seconds."""

    id: int
    start: float
    end: float
    text: str


class TranscribedWord(TypedDict):
    """A word, and where it begins and ends, in seconds."""

    word: str
    start: float
    end: float


class Transcription(TypedDict):
    """The text of an audio file."""

    text: str


class _Details(TypedDict, total=False):
    segments: list[TranscribedSegment]
    words: list[TranscribedWord]


class DetailedTranscription(_Details):
    """The text of an audio file with its parts, for `verbose_json`."""

    task: str
    language: str
    duration: float
    text: str


TYPES: Mapping[str, Sequence[Any]] = {
    "transcribe": (
        TranscriptionBody,
        TranslationBody,
        Transcription,
        DetailedTranscription,
        openai.OpenAIError,
    ),
    "speak": (SpeechBody, openai.OpenAIError),
}


def component_types(mode: str) -> Sequence[Any]:
    """Return the types of a mode's bodies and answers."""
    return TYPES.get(tasks.get(mode).operation or "", ())


def refine(components: Mapping[str, Schema]) -> None:
    """Describe files among the components of a document as they are read."""
    for name in components.keys() & {"TranscriptionBody", "TranslationBody"}:
        components[name]["properties"]["file"] = TEXT


def operations(mode: str) -> list[Operation]:
    """Return the operations of OpenAI's API for audio that a mode has."""
    if tasks.get(mode).operation == "speak":
        return [_speech_of(mode)]
    if tasks.get(mode).operation != "transcribe":
        return []
    return [
        _text_of(mode, "transcriptions", "transcribe", "Return the text of an audio file."),
        _text_of(mode, "translations", "translate", "Return its text in English."),
    ]


def _text_of(mode: str, path: str, name: str, summary: str) -> Operation:
    body = ref("TranscriptionBody" if name == "transcribe" else "TranslationBody")
    file = tasks.get(mode).sample["inputs"]
    shown = {"one": {"file": file}} if name == "transcribe" else {}
    texts = dict.fromkeys(kind.partition(";")[0] for kind in SUBTITLES.values())
    return Operation(
        f"{BELOW}audio/{path}",
        name,
        "OpenAI",
        summary,
        {
            JSON: any_of(ref("Transcription"), ref("DetailedTranscription")),
            **dict.fromkeys(texts, TEXT),
        },
        {JSON: Body(body, shown), FORM: Body(body, {})},
        AS_A_FORM,
        ("OpenAIError",),
    )


def _speech_of(mode: str) -> Operation:
    body = {"input": tasks.get(mode).sample["inputs"], "voice": "alloy"}
    shown = {kind: {**body, "response_format": kind, "seed": 1} for kind in CONTENT_TYPES}
    return Operation(
        f"{BELOW}audio/speech",
        "speak",
        "OpenAI",
        "Return the speech of a text as a file.",
        {kind: {"contentMediaType": kind} for kind in CONTENT_TYPES.values()},
        {JSON: Body(ref("SpeechBody"), shown)},
        errors=("OpenAIError",),
    )
