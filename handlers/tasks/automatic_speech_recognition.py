"""Speech to text: CTC models, such as Wav2Vec2 and HuBERT, Whisper and Moonshine.

{"inputs": "<base64>"}  -> {"text": "MISTER QUILTER IS THE APOSTLE"}
{"inputs": "<base64>", "parameters": {"return_timestamps": "word"}}
-> {"text": …, "chunks": [{"text": "MISTER", "timestamp": [0.5, 0.9]}, …]}

The body may also be the bytes of the audio file. Audio that is longer than a model reads at once is
read in chunks that overlap, or that end at a pause.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, NotRequired

import numpy as np
from pydantic import Field
from transformers import PreTrainedConfig
from typing_extensions import TypedDict

from ..batching.padding import ArrayRow, run_by_shape
from ..batching.rows import Outputs, RowOutcome, require_outputs
from ..checkpoints.checkpoint import Checkpoint
from ..checkpoints.probe_inputs import ArrayInputs, SpeechInputs
from ..compat.transformers import has_model
from ..config.handler_section import HandlerSection
from ..config.model_config import ModelConfig
from ..errors import BadRequest, RequestTooLarge, WrongCheckpoint
from ..generation.parameters import Few, NotNegative, Positive, Probability
from ..media.audio import Samples
from ..model import Model
from ..process.deadline import NO_DEADLINE, Deadline, before
from ..telemetry.metrics import Meter
from ..types.model_info import Exports, ModelOutputs, TaskDescription
from ..types.parameters import ANY, Parameters, PipelineNames
from ..types.request import Request
from .bases.audio import AUDIO_ROWS, AudioTask, audio_wire
from .bases.media import MediaInput
from .bases.speech import SpeechRow, Stride, recognizer_of

Seconds = Annotated[float, Field(ge=0, le=600)]
# A text before the audio's; a model reads its last two hundred tokens.
MAX_PROMPT = 4_000
# Each sample is read by as many chunks at most.
MAX_OVERLAP = 4
# Samples of a place at which a piece of audio may end.
PAUSE = 1_600
# Samples of the first frame of Wav2Vec2 and of models like it.
FRAME = 399
NOT_OF_GENERATE = {
    "return_timestamps",
    "return_language",
    "chunk_length_s",
    "stride_length_s",
    "prompt",
}


class SpeechRecognitionParameters(Parameters):
    """Parameters of the automatic-speech-recognition pipeline."""

    pipeline_names: ClassVar[PipelineNames] = PipelineNames(
        ignored={"batch_size": ANY, "ignore_warning": ANY, "use_cache": ANY}
    )

    return_timestamps: bool | Literal["char", "word"] | None = None
    """Adds `chunks`, parts of the text with their seconds: `char` or `word` for CTC models, `true`
    (segments) or `word` for Whisper."""
    return_language: bool | None = None
    """Adds `language`, the name of the language that is asked for or detected, to the result and to
    each of the `chunks`; Whisper only."""
    chunk_length_s: Annotated[float, Field(ge=1, le=600)] | None = None
    """Seconds of a chunk. Without it, audio that is too long for the model is read in chunks of 30
    seconds."""
    stride_length_s: (
        Seconds | Annotated[list[Seconds], Field(min_length=2, max_length=2)] | None
    ) = None
    """Seconds of a chunk that its neighbours have, too, or a list of those to the left and to the
    right. Without it, a sixth of a chunk."""
    language: Annotated[str, Field(min_length=1, max_length=40)] | None = None
    """Language of the speech, as a code or by its name; Whisper only. Without it, Whisper finds it
    out."""
    task: Literal["transcribe", "translate"] | None = None
    """`translate` writes in English; Whisper only."""
    prompt: Annotated[str, Field(max_length=MAX_PROMPT)] | None = None
    """Text before the audio's, which names or spellings are taken from; Whisper only."""
    max_new_tokens: Positive | None = None
    """Maximum tokens of the text of a chunk; Whisper and Moonshine only."""
    num_beams: Few | None = None
    """Beams of a beam search; Whisper and Moonshine only. Without it, 5 for Whisper, as in the
    pipeline, and 1 for Moonshine."""
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    """Temperature of sampling; 0 takes the most likely tokens. Whisper and Moonshine only."""
    top_k: NotNegative | None = None
    """Samples from this number of most likely tokens; Whisper and Moonshine only."""
    top_p: Probability | None = None
    """Samples from the most likely tokens with this total probability; Whisper and Moonshine
    only."""
    repetition_penalty: Annotated[float, Field(ge=0.01, le=100)] | None = None
    """Penalty for tokens that occurred before; Whisper and Moonshine only."""
    no_repeat_ngram_size: NotNegative | None = None
    """Length of n-grams that may occur once only; Whisper and Moonshine only."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    """Makes sampling repeatable; Whisper and Moonshine only."""

    @property
    def of_writing(self) -> tuple[str, ...]:
        """The parameters that a model of CTC has not."""
        first = ("return_language", "prompt")
        return (*first, *(name for name in type(self).model_fields if name not in NOT_OF_GENERATE))

    @property
    def for_generate(self) -> dict[str, Any]:
        """The arguments of `generate` that are set."""
        return self.model_dump(exclude=NOT_OF_GENERATE, exclude_none=True)


class SpeechChunk(TypedDict):
    """A part of a text, and where it begins and ends, in seconds."""

    text: str
    timestamp: NotRequired[list[float | None]]
    language: NotRequired[str | None]


class SpeechText(TypedDict):
    """The text of an audio file."""

    text: str
    chunks: NotRequired[list[SpeechChunk]]
    language: NotRequired[str | None]


class Task(AudioTask):
    """Speech recognition; answers as the automatic-speech-recognition pipeline does."""

    auto_class = "AutoModelForCTC"
    description = TaskDescription(
        audio_wire(results=SpeechText, result_columns=("text",)),
        outputs=ModelOutputs(("logits",)),
        rows=AUDIO_ROWS,
        exports=Exports(fastest_formats={"cpu": "openvino"}),
        service="transcribe",
    )
    parameters = SpeechRecognitionParameters
    extractor_options: ClassVar[Mapping[str, Any]] = {"return_attention_mask": True}

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        self.recognizer = recognizer_of(checkpoint, self.auto_class_for(checkpoint.config))
        super().__init__(checkpoint, settings)

    @classmethod
    def auto_class_for(cls, config: PreTrainedConfig) -> str:
        has_letters = has_model("AutoModelForCTC", config)
        return "AutoModelForCTC" if has_letters else "AutoModelForSpeechSeq2Seq"

    def parse(self, request: Request) -> MediaInput:
        item = super().parse(request)
        self.recognizer.check(item.parameters)
        self.recognizer.settings(item.parameters)
        return item

    def rows_of(self, item: MediaInput, samples: Samples) -> list[ArrayRow]:
        settings = self.recognizer.settings(item.parameters)
        return [
            self._row(samples[start : start + length], stride, settings)
            for start, length, stride in self._chunks(item.parameters, samples)
        ]

    def run(
        self,
        model: Model,
        rows: Sequence[ArrayRow],
        meter: Meter,
        deadline: Deadline = NO_DEADLINE,
    ) -> Sequence[RowOutcome]:
        outcomes: list[RowOutcome] = [{}] * len(rows)
        for numbers, settings in _by_settings(rows):
            forward = partial(self.recognizer.run, model, settings=settings, deadline=deadline)
            found = run_by_shape(
                before(deadline, forward),
                [rows[number] for number in numbers],
                budget=self.budget,
                meter=meter,
                postprocess=self.postprocess,
            )
            for number, outcome in zip(numbers, found, strict=True):
                outcomes[number] = outcome
        return outcomes

    @property
    def graph_inputs(self) -> ArrayInputs:
        if not self.recognizer.has_graph:
            raise WrongCheckpoint(
                "config.json",
                f"is of a {self.checkpoint.config.model_type} model, which is not exported",
                "use save_mode: pretrained",
            )
        inputs = super().graph_inputs
        return SpeechInputs(inputs.example) if self.recognizer.writes else inputs

    def reference_rows(self, reference: Model, rows: Sequence[ArrayRow]) -> Sequence[ArrayRow]:
        if not self.recognizer.writes:
            return rows
        return [self.recognizer.with_text(reference, row) for row in rows]

    def outputs_for_comparison(self, model: Model, rows: Sequence[ArrayRow]) -> Sequence[Outputs]:
        """Return the scores of the letter of each frame, or of each token of a text."""
        return require_outputs(super().run(model, rows, Meter()))

    def decode(self, item: MediaInput, rows: Sequence[ArrayRow], outputs: Sequence[Outputs]) -> Any:
        chunks = [row for row in rows if isinstance(row, SpeechRow)]
        return self.recognizer.decode(item.parameters, chunks, outputs)

    def warmup_batches(self, config: ModelConfig, model: Model) -> list[list[Any]]:
        """Return a second of silence, of which little text is written."""
        settings = {
            **self.recognizer.settings(self.read_parameters({})),
            **self.recognizer.warmup,
        }
        row = self._row(np.zeros(self.sampling_rate, np.float32), None, settings)
        return [[row] * 2, [row]]

    def _row(
        self, samples: Samples, stride: Stride | None, settings: Mapping[str, Any]
    ) -> SpeechRow:
        row = self._checked(self.extract(samples))
        return SpeechRow(row.features, row.size, stride, settings)

    def _chunks(self, parameters: Any, audio: Samples) -> list[tuple[int, int, Stride | None]]:
        """Return the first sample, the length and the stride of each chunk.

        Raises:
            BadRequest: chunks overlap as a whole.
            RequestTooLarge: chunks are too long for the model, or overlap too much.
        """
        seconds, samples = parameters.chunk_length_s, len(audio)
        if seconds is None and samples <= self._whole_samples:
            return [(0, samples, None)]
        seconds = self._check_chunk(seconds)
        if not self.recognizer.overlaps:
            return [(*each, None) for each in pieces(audio, self._aligned(seconds))]
        stride = parameters.stride_length_s
        sides = (
            stride if isinstance(stride, list) else [seconds / 6 if stride is None else stride] * 2
        )
        length, left, right = (self._aligned(each) for each in (seconds, *sides))
        step = length - left - right
        if step <= 0:
            raise BadRequest(
                "parameters: stride_length_s leaves nothing of a chunk; send less of it, or more"
                " of chunk_length_s."
            )
        if length > MAX_OVERLAP * step:
            raise RequestTooLarge(
                "parameters: stride_length_s makes chunks overlap too much; send at most three"
                " eighths of chunk_length_s."
            )
        last = max(0, math.ceil((samples - length) / step))
        strides = [
            (start, length, self._stride(start, length, left, right, samples))
            for start in range(0, last * step + 1, step)
        ]
        # The last one may have no more than the one before, or less than a frame.
        return [each for each in strides if each[2][0] > max(each[2][1], FRAME)]

    def _stride(self, start: int, length: int, left: int, right: int, samples: int) -> Stride:
        is_last = start + length >= samples
        return (min(length, samples - start), left if start else 0, 0 if is_last else right)

    def _check_chunk(self, seconds: float | None) -> float:
        """Return the seconds of chunks."""
        most = self.recognizer.max_chunk_seconds
        if seconds is not None and most is not None and seconds > most:
            raise RequestTooLarge(
                f"parameters: chunk_length_s is {seconds:g}, and this model reads {most:g} seconds"
                " at once; send less, or leave it out."
            )
        if seconds is not None:
            return seconds
        return min(self.recognizer.chunk_seconds, self.most_samples / self.sampling_rate)

    @property
    def _whole_samples(self) -> float:
        """The maximum number of samples of audio that is read as a whole."""
        most = self.recognizer.max_chunk_seconds
        whole = self.most_samples if most is None else most * self.sampling_rate
        return whole if self.recognizer.overlaps else min(whole, self.most_samples)

    def _aligned(self, seconds: float) -> int:
        alignment = self.recognizer.alignment
        return round(seconds * self.sampling_rate / alignment) * alignment


def pieces(audio: Samples, length: int) -> list[tuple[int, int]]:
    """Return the first sample and the length of the pieces of audio, which do not overlap.

    Each ends at the quietest place of the last sixth of the longest that it may be.

    Args:
        audio: the samples. Shape: (samples,).
        length: the maximum number of samples of a piece.
    """
    found: list[tuple[int, int]] = []
    start, pause = 0, min(PAUSE, length // 6)
    count = length // 6 // pause
    while len(audio) - start > length:
        first = start + length - count * pause
        places = audio[first : start + length].reshape(count, pause)
        end = first + int(np.square(places).sum(axis=1).argmin()) * pause
        found.append((start, end - start))
        start = end
    return [*found, (start, len(audio) - start)]


def _by_settings(
    rows: Sequence[ArrayRow],
) -> list[tuple[list[int], Mapping[str, Any]]]:
    """Return the numbers of rows that may share a batch, and their settings.

    A row whose tokens are sampled is by itself, so that its random numbers are its own. So is one
    with times of words: transformers finds them in another way where rows have other lengths.
    """
    groups: dict[str, list[int]] = {}
    found: dict[str, Mapping[str, Any]] = {}
    for number, row in enumerate(rows):
        settings = row.settings if isinstance(row, SpeechRow) else {}
        runs_alone = settings.get("temperature") or "return_token_timestamps" in settings
        alone = number if runs_alone else ""
        key = f"{alone} {sorted(settings.items())}"
        groups.setdefault(key, []).append(number)
        found[key] = settings
    return [(numbers, found[key]) for key, numbers in groups.items()]
