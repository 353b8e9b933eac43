"""A text to speech, by VITS models such as MMS-TTS.

    {"inputs": "A red fox.", "parameters": {"seed": 7}}
    -> {"audio": "<base64 of a WAV file>", "sampling_rate": 16000, "seed": 7}

The waveform is what the text-to-speech pipeline returns after `set_seed`. Texts run one after
the other: in a batch the random numbers of each would depend on the others.
"""

from __future__ import annotations

import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import Field
from typing_extensions import TypedDict

from ..batching.padding import Tensors
from ..batching.rows import BaseRow, Outputs, RowOutcome
from ..checkpoints.checkpoint import Checkpoint
from ..checkpoints.probe_inputs import GraphInputs
from ..config.handler_section import HandlerSection
from ..config.messages import enumerate_names, quote
from ..config.model_config import ModelConfig
from ..errors import (
    BadRequest,
    DeadlineExceeded,
    RequestError,
    TextTooLong,
    Unprocessable,
    WrongCheckpoint,
    WrongConfig,
    attempt,
)
from ..media.audio import AUDIO_TYPES, INSTALL, PACKAGES, convert_wav, wav_in_base64
from ..model import ForwardOnlyModel, Model
from ..process.deadline import NO_DEADLINE, Deadline
from ..process.packages import require_package
from ..process.ranks import agree
from ..telemetry.metrics import Meter
from ..types.model_info import (
    Exports,
    Limits,
    ModelOutputs,
    ResultFiles,
    Rows,
    TaskDescription,
    Wire,
)
from ..types.parameters import ANY, Parameters, PipelineNames, check_text
from ..types.request import Request
from .base import BaseTask

# Those of OpenAI's API. Tokenizers of VITS read a text letter by letter, in Python.
MAX_CHARACTERS = 4_096
# The memory of attention grows with their square.
DEFAULT_TOKENS = 2_048
WARMUP_TOKENS = 32
Scale = Annotated[float, Field(ge=0, le=2)]
VITS = "vits"
# Packages that tokenizers import when the first text needs them.
PHONEMIZER = "pip install phonemizer, and install espeak-ng with the system's package manager"
UROMAN = "pip install uroman"


@dataclass(frozen=True)
class VitsCheckpoint(Checkpoint):
    """A checkpoint of VITS without its weights."""

    def check(self, auto_class: str) -> None:
        """Check that the model is VITS.

        Raises:
            WrongCheckpoint: it is another one, or needs custom code.
        """
        if self.config.model_type != VITS:
            raise WrongCheckpoint(
                "config.json",
                f"has model_type {self.config.model_type}, and mode: text_to_speech serves VITS"
                " alone",
                "use a checkpoint of VITS, such as facebook/mms-tts-eng",
            )
        super().check(auto_class)

    def require_packages(self) -> None:
        """Check that the packages of the tokenizer are installed.

        Raises:
            WrongConfig: one is not.
        """
        tokenizer = self.any_tokenizer
        if getattr(tokenizer, "phonemize", False):
            require_package("phonemizer", "tokenizer_config.json: phonemize", PHONEMIZER)
        if getattr(tokenizer, "is_uroman", False):
            require_package("uroman", "tokenizer_config.json: is_uroman", UROMAN)

    @property
    def sampling_rate(self) -> int:
        """The sampling rate of its waveforms, in Hz."""
        return int(self.config.sampling_rate)

    @property
    def speakers(self) -> int:
        """The number of its speakers."""
        return int(self.config.num_speakers)


@dataclass(frozen=True)
class SpeechCall:
    """The call of a model for one text.

    Attributes:
        input_ids: the tokens of the text.
        speaker_id: the number of the speaker; None for the model without one.
        speaking_rate: the rate; None for the model's own, as of the others.
        noise_scale: how random the speech is.
        noise_scale_duration: how random the durations are.
    """

    input_ids: Sequence[int]
    seed: int
    max_seconds: float
    speaker_id: int | None = None
    speaking_rate: float | None = None
    noise_scale: float | None = None
    noise_scale_duration: float | None = None


class SpeechModel(ForwardOnlyModel, ABC):
    """A model that speaks texts."""

    @abstractmethod
    def speak(self, call: SpeechCall) -> npt.NDArray[np.float32]:
        """Return the waveform of one call. Shape: (samples,).

        Raises:
            RequestTooLarge: it would be longer than the call allows; it is not computed.
        """

    def forward(self, batch: Mapping[str, Any]) -> Mapping[str, Any]:
        raise NotImplementedError


class TextToSpeechParameters(Parameters):
    """Parameters of VITS."""

    pipeline_names: ClassVar[PipelineNames] = PipelineNames(ignored={"batch_size": ANY})

    voice: Annotated[str, Field(min_length=1, max_length=60)] | None = None
    """Name of a speaker: one of the YAML's `voices`, or a number as a text. A model with one
    speaker takes any."""
    speaker_id: Annotated[int, Field(ge=0, lt=2**31)] | None = None
    """Number of a speaker, for models with several."""
    speaking_rate: Annotated[float, Field(ge=0.1, le=10)] | None = None
    """Speed of the speech. Without it, the model's, most often 1."""
    noise_scale: Scale | None = None
    """How much the speech varies. Without it, the model's."""
    noise_scale_duration: Scale | None = None
    """How much the durations of letters vary. Without it, the model's."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    """Seed of the noise. Without it, a random one, which the result has."""


class Speech(TypedDict):
    """Speech as a WAV file of 16 bits in base64, with its sampling rate and its seed."""

    audio: str
    sampling_rate: int
    seed: int


@dataclass(frozen=True)
class SpeechInput:
    """A text to speak, and the settings of its call."""

    text: str
    seed: int
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class SpeechRow(BaseRow):
    """The tokens of a text to speak."""

    call: SpeechCall
    features: Mapping[str, Any] = field(default_factory=dict)

    @property
    def cost(self) -> int:
        return len(self.call.input_ids)


class Task(BaseTask[SpeechInput, SpeechRow]):
    """Text to speech; answers with the waveforms of the text-to-speech pipeline."""

    checkpoint_class = VitsCheckpoint
    checkpoint: VitsCheckpoint
    auto_class = "AutoModelForTextToWaveform"
    description = TaskDescription(
        Wire(
            inputs=str,
            results=Speech,
            example={
                "inputs": "a red fox sings",
                "parameters": {"seed": 1},
            },
            result_columns=("audio", "sampling_rate", "seed"),
            result_files=ResultFiles(
                tuple(AUDIO_TYPES),
                lambda speech, kind: convert_wav(speech["audio"], kind),
                re.compile("hf_hub/|@huggingface/inference/"),
                "audio/flac",
            ),
        ),
        outputs=ModelOutputs(("waveform",)),
        rows=Rows(supports_packing=False),
        # Durations are random numbers, so that two dtypes have waveforms of different lengths.
        exports=Exports(supported=False, one_forward=False),
        service="speak",
    )
    parameters = TextToSpeechParameters

    def __init__(self, checkpoint: VitsCheckpoint, settings: HandlerSection) -> None:
        super().__init__(checkpoint, settings)
        for package in PACKAGES:
            require_package(package, f"mode: {settings.mode}", INSTALL)
        checkpoint.require_packages()
        self.tokenizer: Any = checkpoint.any_tokenizer
        if settings.truncation:
            raise WrongConfig(
                "handler.truncation", "is true, and texts to speak are not cut", "leave it out"
            )
        self._check_voices()
        self.max_tokens = settings.max_length or DEFAULT_TOKENS
        self._max_characters = min(settings.max_characters, MAX_CHARACTERS)

    def parse(self, request: Request) -> SpeechInput:
        parameters: TextToSpeechParameters = self.read_parameters(request.parameters)
        text = check_text(request.inputs, "inputs", self._max_characters)
        seed = secrets.randbits(32) if parameters.seed is None else parameters.seed
        settings = {
            "speaker_id": self._speaker(parameters),
            **parameters.model_dump(exclude={"voice", "speaker_id", "seed"}),
        }
        return SpeechInput(text, seed, settings)

    def encode(self, inputs: Sequence[SpeechInput]) -> list[list[SpeechRow] | RequestError]:
        return [attempt(self._rows, item) for item in inputs]

    def run(
        self,
        model: Model,
        rows: Sequence[SpeechRow],
        meter: Meter,
        deadline: Deadline = NO_DEADLINE,
    ) -> Sequence[RowOutcome]:
        if not isinstance(model, SpeechModel):
            raise NotImplementedError
        return [attempt(partial(self._speak, model, deadline, meter), row) for row in rows]

    def decode(
        self, item: SpeechInput, rows: Sequence[SpeechRow], outputs: Sequence[Outputs]
    ) -> Speech:
        rate = self.checkpoint.sampling_rate
        audio = wav_in_base64(outputs[0]["waveform"], rate)
        return Speech(audio=audio, sampling_rate=rate, seed=item.seed)

    def collate(self, rows: Sequence[SpeechRow]) -> Tensors:
        raise NotImplementedError

    def warmup_batches(self, config: ModelConfig, model: Model) -> list[list[Any]]:
        """Return a text of a few letters."""
        ids = [0] * min(WARMUP_TOKENS, self.max_tokens)
        return [[SpeechRow(SpeechCall(ids, 0, self.settings.max_output_seconds))]]

    @property
    def graph_inputs(self) -> GraphInputs:
        raise NotImplementedError

    @property
    def budget(self) -> int:
        """The maximum number of tokens of a text."""
        return self.max_tokens

    @property
    def limits(self) -> Limits:
        return Limits(
            max_length=self.max_tokens,
            max_rows=self.settings.max_rows,
            max_characters=self._max_characters,
            truncation=False,
        )

    def _rows(self, item: SpeechInput) -> list[SpeechRow]:
        ids = self.tokenizer(item.text)["input_ids"]
        # Blanks stand between the letters, and at both ends.
        letters = ids[1::2] if getattr(self.tokenizer, "add_blank", False) else ids
        unknown = self.tokenizer.unk_token_id
        if all(letter == unknown for letter in letters):
            raise Unprocessable(
                "inputs has no letter that the vocabulary of this model has; send a text in the"
                " language and the script of the model."
            )
        if max(ids) >= self.checkpoint.vocab_size:
            raise Unprocessable(
                "inputs has a letter that the vocabulary of this model does not have; leave it out."
            )
        if len(ids) > self.max_tokens:
            raise TextTooLong(
                f"inputs has {len(ids):,} tokens, and this model takes {self.max_tokens:,}; send"
                " the text in parts."
            )
        return [
            SpeechRow(SpeechCall(ids, item.seed, self.settings.max_output_seconds, **item.settings))
        ]

    def _speak(
        self, model: SpeechModel, deadline: Deadline, meter: Meter, row: SpeechRow
    ) -> Outputs:
        if agree(deadline.passed):
            raise DeadlineExceeded
        waveform = model.speak(row.call)
        meter.count(forwards=1)
        return {"waveform": waveform}

    def _speaker(self, parameters: TextToSpeechParameters) -> int | None:
        """Return the number of the speaker of a request; None without one.

        Raises:
            RequestError: there is no such speaker.
        """
        number, count = parameters.speaker_id, self.checkpoint.speakers
        if number is None:
            return self._speaker_named(parameters.voice)
        if parameters.voice is not None:
            raise BadRequest("parameters: voice and speaker_id name a speaker; send one of them.")
        if count == 1:
            raise Unprocessable("This model has one speaker; leave speaker_id out.")
        if number >= count:
            raise Unprocessable(
                f"speaker_id is {number}, and this model has {count} speakers; send one from 0 to"
                f" {count - 1}."
            )
        return number

    def _speaker_named(self, voice: str | None) -> int | None:
        voices, count = self.settings.voices, self.checkpoint.speakers
        if voice is None or count == 1:
            return None
        if voice in voices:
            return voices[voice]
        if voice.isdecimal() and len(voice) < 10 and int(voice) < count:
            return int(voice)
        named = f"{enumerate_names(voices)} and " if voices else ""
        raise Unprocessable(
            f"voice {quote(voice)} is none of this model; there are {named}the numbers from 0 to"
            f" {count - 1}."
        )

    def _check_voices(self) -> None:
        count = self.checkpoint.speakers
        wrong = next((name for name, at in self.settings.voices.items() if at >= count), None)
        if wrong is not None:
            raise WrongConfig(
                "handler.voices",
                f"has {quote(wrong)} with the number {self.settings.voices[wrong]}, and the"
                f" checkpoint has {count} speaker{'s' if count > 1 else ''}",
                f"use numbers from 0 to {count - 1}, or leave it out",
            )
