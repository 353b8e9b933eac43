"""Recognizers of speech: CTC models, which have a letter for each frame, Whisper and Moonshine.

They take the chunks of an audio file and return a text and its parts. Functions of transformers'
automatic-speech-recognition pipeline join the chunks of CTC models and of Whisper.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from transformers import StoppingCriteria, StoppingCriteriaList

from ...batching.padding import ArrayRow, Tensors, stack
from ...batching.rows import Outputs
from ...checkpoints.checkpoint import Checkpoint
from ...checkpoints.probe_inputs import WRITTEN
from ...compat.transformers import (
    WHISPER_LANGUAGE_CODES,
    WHISPER_LANGUAGES,
    join_chunks,
    word_offsets,
)
from ...config.messages import quote
from ...errors import BadRequest, DeadlineExceeded, TextTooLong, Unprocessable, WrongCheckpoint
from ...generation.checkpoint_defaults import with_checked_defaults
from ...generation.stopping import DeadlineCriterion
from ...model import Model
from ...process.deadline import Deadline
from ...process.ranks import seeded

# Samples of a chunk, and those at its two ends that other chunks have, too.
Stride = tuple[int, int, int]
WHISPER, MOONSHINE = "whisper", "moonshine"
# The defaults of the pipeline.
NUM_BEAMS = 5
NEW_TOKENS = 256
ENGLISH = "en"
# GenerationConfig's own default, which a checkpoint without a limit may have written.
UNSET_MAX_LENGTH = 20
CTC_CHUNK_SECONDS = 30.0
SPECIAL_TOKENS = 8
# Each has a score for every word of the vocabulary.
COMPARED_TOKENS = 16
# The longest audio that Moonshine is trained with, and its most tokens for a second of it, with
# which its model card ends texts that repeat themselves.
MOONSHINE_SECONDS = 30.0
TOKENS_PER_SECOND = 6.5
# Of short audio, whose only word may have several tokens.
MIN_NEW_TOKENS = 8


class LanguageRecorder(StoppingCriteria):
    """Records the language of each row, which is the token after the one that begins a text.

    `generate` returns the tokens behind it alone. It is the one that was asked for or detected.

    Args:
        start: the token that begins a text.
    """

    def __init__(self, start: int, rows: int) -> None:
        self._start, self._rows = start, rows
        self.tokens = torch.empty(0, dtype=torch.long)

    def __call__(
        self, input_ids: torch.Tensor, scores: torch.Tensor, **options: Any
    ) -> torch.Tensor:
        # Later calls may have some of the rows alone.
        if not len(self.tokens):
            # A prompt comes before it, which is the same for all rows.
            place = int((input_ids[0] == self._start).nonzero()[0, 0]) + 1
            # A beam search passes twice as many sequences of each row as it has beams.
            self.tokens = input_ids[:: len(input_ids) // self._rows, place]
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)


@dataclass(frozen=True)
class SpeechRow(ArrayRow):
    """A chunk of an audio file.

    Attributes:
        stride: its samples and those that other chunks have; None for a file of one chunk.
        settings: how its text is written. Rows of one batch have equal ones.
    """

    stride: Stride | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)


class Recognizer(ABC):
    """How a kind of model recognizes speech.

    Attributes:
        chunk_seconds: the length of chunks of audio that is too long for one, without a request's.
        max_chunk_seconds: the maximum length of a chunk; None for no own limit.
        alignment: the number of samples of which the length of a chunk is a multiple.
        warmup: the settings of rows that run at load.
        writes: whether its models write texts, token by token.
        overlaps: whether chunks overlap; others end at pauses.
        has_graph: whether its models are exported.
    """

    chunk_seconds: float
    max_chunk_seconds: float | None = None
    outputs: tuple[str, ...]
    alignment: int
    warmup: ClassVar[Mapping[str, Any]] = {}
    writes: ClassVar[bool] = False
    overlaps: ClassVar[bool] = True
    has_graph: ClassVar[bool] = True

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self.tokenizer: Any = checkpoint.any_tokenizer
        self.sampling_rate = int(checkpoint.feature_extractor.sampling_rate)

    @abstractmethod
    def check(self, parameters: Any) -> None:
        """Check parameters.

        Raises:
            Unprocessable: the model cannot do what they ask for.
        """

    @abstractmethod
    def settings(self, parameters: Any) -> dict[str, Any]:
        """Return how the text of rows with these parameters is written."""

    @abstractmethod
    def run(
        self, model: Model, batch: Tensors, settings: Mapping[str, Any], deadline: Deadline
    ) -> Mapping[str, torch.Tensor]:
        """Return the outputs of rows with equal settings."""

    def with_text(self, model: Model, row: ArrayRow) -> ArrayRow:
        """Return a row with the first tokens that a model writes of it, where it writes."""
        raise NotImplementedError

    @abstractmethod
    def decode(
        self, parameters: Any, rows: Sequence[SpeechRow], outputs: Sequence[Outputs]
    ) -> dict[str, Any]:
        """Return the text of an audio file and its parts, from its chunks."""


class CtcRecognizer(Recognizer):
    """CTC models, such as Wav2Vec2 and HuBERT."""

    chunk_seconds = CTC_CHUNK_SECONDS
    outputs = ("logits",)

    def __init__(self, checkpoint: Checkpoint) -> None:
        super().__init__(checkpoint)
        self.alignment = int(getattr(checkpoint.config, "inputs_to_logits_ratio", 1))

    def check(self, parameters: Any) -> None:
        if parameters.return_timestamps is True:
            raise Unprocessable(
                "return_timestamps is true, and this model has those of letters and words; send"
                ' "char" or "word".'
            )
        given = [name for name in parameters.of_writing if getattr(parameters, name) is not None]
        if given:
            raise Unprocessable(f"{given[0]} cannot be done by a CTC model; leave it out.")

    def settings(self, parameters: Any) -> dict[str, Any]:
        return {}

    def run(
        self, model: Model, batch: Tensors, settings: Mapping[str, Any], deadline: Deadline
    ) -> Mapping[str, torch.Tensor]:
        return {"tokens": model.forward(batch)["logits"].argmax(dim=-1)}

    def decode(
        self, parameters: Any, rows: Sequence[SpeechRow], outputs: Sequence[Outputs]
    ) -> dict[str, Any]:
        parts = [self._without_strides(*each) for each in zip(rows, outputs, strict=True)]
        tokens = np.concatenate(parts).astype(np.int64)
        if not parameters.return_timestamps:
            return {"text": self.tokenizer.decode(tokens, skip_special_tokens=False)}
        found = self.tokenizer.decode(tokens, skip_special_tokens=False, output_char_offsets=True)
        offsets = found["char_offsets"]
        if parameters.return_timestamps == "word":
            offsets = word_offsets(self.tokenizer, offsets)
        chunks = [self._chunk(each, parameters.return_timestamps) for each in offsets]
        return {"text": found["text"], "chunks": chunks}

    def _without_strides(self, row: SpeechRow, outputs: Outputs) -> Any:
        """Return the letters of frames that no other chunk has."""
        tokens = outputs["tokens"]
        if row.stride is None:
            return tokens
        samples, left, right = row.stride
        frames = round(samples / self.alignment)
        begin, end = (round(each / samples * frames) for each in (left, right))
        return tokens[begin : frames - end]

    def _chunk(self, offset: Mapping[str, Any], kind: str) -> dict[str, Any]:
        seconds = [
            offset[name] * self.alignment / self.sampling_rate
            for name in ("start_offset", "end_offset")
        ]
        return {"text": offset[kind], "timestamp": seconds}


class WritingRecognizer(Recognizer):
    """Models that write the text of a chunk, token by token.

    Attributes:
        base: the generation config of the checkpoint.
        most_new_tokens: the maximum number of tokens of a text.
    """

    outputs = ("tokens",)
    alignment = 1
    warmup: ClassVar[Mapping[str, Any]] = {"max_new_tokens": 4}
    writes = True
    most_new_tokens: int

    def __init__(self, checkpoint: Checkpoint) -> None:
        super().__init__(checkpoint)
        self.base = with_checked_defaults(checkpoint.generation_config, checkpoint.config)

    def check_new_tokens(self, parameters: Any) -> None:
        """Check the maximum number of tokens of a text.

        Raises:
            TextTooLong: it is more than a text of the model has.
        """
        if (parameters.max_new_tokens or 0) > self.most_new_tokens:
            raise TextTooLong(
                f"max_new_tokens is {parameters.max_new_tokens:,}, and this model's texts have at"
                f" most {self.most_new_tokens:,} tokens; ask for fewer."
            )

    def with_text(self, model: Model, row: ArrayRow) -> ArrayRow:
        config = copy.deepcopy(self.base)
        config.num_beams = config.num_return_sequences = 1
        config.max_new_tokens = min(COMPARED_TOKENS, self.most_new_tokens)
        found = model.generate_outputs(stack([row]), config, return_dict_in_generate=True)
        # The last token is compared only: none is read after it.
        tokens = found["sequences"][0, :-1].numpy()
        return replace(row, features={**row.features, WRITTEN: tokens})


class WhisperRecognizer(WritingRecognizer):
    """Whisper, which writes the text of 30 seconds, in a language or translated to English."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        super().__init__(checkpoint)
        extractor: Any = checkpoint.feature_extractor
        self.chunk_seconds = self.max_chunk_seconds = float(extractor.chunk_length)
        self._time_precision = extractor.chunk_length / checkpoint.config.max_source_positions
        self.most_new_tokens = int(checkpoint.config.max_target_positions) // 2

    def check(self, parameters: Any) -> None:
        if parameters.return_timestamps == "char":
            raise Unprocessable(
                'return_timestamps is "char", and this model has those of segments and words; send'
                ' true or "word".'
            )
        needed = {
            "return_timestamps": (parameters.return_timestamps, "no_timestamps_token_id"),
            "language": (self._language(parameters), "lang_to_id"),
            "task": (self._task(parameters), "task_to_id"),
        }
        if parameters.return_timestamps == "word":
            needed["word"] = (True, "alignment_heads")
        for name, (value, key) in needed.items():
            if value and not getattr(self.base, key, None):
                raise Unprocessable(
                    f"{name} cannot be done by this model, whose generation_config.json has no"
                    f" {key}; leave it out."
                )
        self._check_language(parameters)
        self.check_new_tokens(parameters)

    def settings(self, parameters: Any) -> dict[str, Any]:
        own = parameters.for_generate
        for name, value in (
            ("language", self._language(parameters)),
            ("task", self._task(parameters)),
        ):
            if value is None:
                own.pop(name, None)
        timestamps = parameters.return_timestamps
        if timestamps or getattr(self.base, "return_timestamps", False):
            own["return_timestamps"] = True
        if timestamps == "word":
            own |= {"return_token_timestamps": True, "return_segments": True}
        if parameters.prompt:
            own["prompt_ids"] = self._prompt_ids(parameters.prompt)
        return own

    def run(
        self, model: Model, batch: Tensors, settings: Mapping[str, Any], deadline: Deadline
    ) -> Mapping[str, torch.Tensor]:
        options = dict(settings)
        config = copy.deepcopy(self.base)
        config.num_beams = options.pop("num_beams", NUM_BEAMS)
        config.num_return_sequences = 1
        has_limit = self.base.max_length not in (None, UNSET_MAX_LENGTH)
        config.max_new_tokens = options.pop("max_new_tokens", None if has_limit else NEW_TOKENS)
        if "prompt_ids" in options:
            options["prompt_ids"] = torch.tensor(options["prompt_ids"])
        criterion = DeadlineCriterion(deadline)
        languages = LanguageRecorder(config.decoder_start_token_id, len(batch["input_features"]))
        with seeded(options.pop("seed", None)):
            found = model.generate_outputs(
                batch,
                config,
                stopping_criteria=StoppingCriteriaList([criterion, languages]),
                **options,
            )
        if criterion.reached:
            raise DeadlineExceeded
        kept = {"language": languages.tokens}
        if not isinstance(found, Mapping):
            return {"tokens": found, **kept}
        return {"tokens": found["sequences"], "timestamps": _timestamps(found), **kept}

    def decode(
        self, parameters: Any, rows: Sequence[SpeechRow], outputs: Sequence[Outputs]
    ) -> dict[str, Any]:
        named = bool(parameters.return_language)
        text, parts = join_chunks(
            self.tokenizer,
            [self._chunk(*each, named=named) for each in zip(rows, outputs, strict=True)],
            return_timestamps=parameters.return_timestamps
            or getattr(self.base, "return_timestamps", None),
            return_language=named,
            time_precision=self._time_precision,
        )
        for chunk in parts.get("chunks", ()):
            if "timestamp" in chunk:
                chunk["timestamp"] = list(chunk["timestamp"])
            if named and (chunk["language"] is None or self._is_of_english):
                chunk["language"] = self._only_language
        if named:
            parts["language"] = self._name_of(outputs[0]["language"]) or self._only_language
        return {"text": text, **parts}

    def _chunk(self, row: SpeechRow, outputs: Outputs, *, named: bool) -> dict[str, Any]:
        """Return what the tokenizer joins; the token of the language before the others."""
        tokens, language = outputs["tokens"].astype(np.int64), outputs["language"]
        before = [int(language)] if named and self._name_of(language) else []
        chunk: dict[str, Any] = {"tokens": np.concatenate([before, tokens])[None].astype(np.int64)}
        if "timestamps" in outputs:
            times = np.concatenate([np.zeros(len(before)), outputs["timestamps"]])
            chunk["token_timestamps"] = times[None]
        if row.stride is not None:
            chunk["stride"] = tuple(each / self.sampling_rate for each in row.stride)
        return chunk

    def _name_of(self, token: Any) -> str | None:
        """Return the name of the language that a token is of; None for other tokens."""
        # Others would be read as a part of the text.
        if self._is_of_english or int(token) not in self._special_tokens:
            return None
        return WHISPER_LANGUAGES.get(_code(self.tokenizer.convert_ids_to_tokens(int(token))))

    @cached_property
    def _special_tokens(self) -> frozenset[int]:
        return frozenset(self.tokenizer.all_special_ids)

    @property
    def _only_language(self) -> str | None:
        """The name of the language of a model that has one alone."""
        return None if self._languages else WHISPER_LANGUAGES[ENGLISH]

    @property
    def _is_of_english(self) -> bool:
        """Whether the checkpoint says that the model has one language alone."""
        return not self._languages and getattr(self.base, "is_multilingual", None) is False

    def _language(self, parameters: Any) -> str | None:
        """Return the language of a request; None where the model has only that one."""
        given: str | None = parameters.language
        is_only = given and not self._languages and _code(given) == ENGLISH
        return None if is_only else given

    def _task(self, parameters: Any) -> str | None:
        """Return the task of a request; None where the model has only that one."""
        given: str | None = parameters.task
        return None if given == "transcribe" and not self._languages else given

    @property
    def _languages(self) -> Mapping[str, int]:
        """The tokens of languages; none of a model of English alone."""
        return getattr(self.base, "lang_to_id", None) or {}

    def _check_language(self, parameters: Any) -> None:
        if self._language(parameters) is None:
            return
        code = _code(parameters.language)
        if code not in WHISPER_LANGUAGES or f"<|{code}|>" not in self.base.lang_to_id:
            raise BadRequest(
                f"language {quote(parameters.language)} is none of this model; send a code such as"
                " en, or a name such as english."
            )

    def _prompt_ids(self, prompt: str) -> list[int]:
        """Return the tokens of a text before the audio's, the last ones where it is long."""
        try:
            first, *others = self.tokenizer.get_prompt_ids(prompt).tolist()
        except ValueError:
            raise BadRequest("prompt has a special token of this model; leave it out.") from None
        most = self.most_new_tokens - 1 - SPECIAL_TOKENS
        return [first, *others[-most:]]


class MoonshineRecognizer(WritingRecognizer):
    """Moonshine, which writes the text of audio of any length up to 30 seconds.

    Texts are as long as its model card allows, 6.5 tokens for a second.
    """

    chunk_seconds = max_chunk_seconds = MOONSHINE_SECONDS
    overlaps = has_graph = False

    def __init__(self, checkpoint: Checkpoint) -> None:
        super().__init__(checkpoint)
        self.most_new_tokens = int(checkpoint.config.max_position_embeddings) - 1

    def check(self, parameters: Any) -> None:
        names = ("return_timestamps", "return_language", "language", "task", "prompt")
        for name in (*names, "stride_length_s"):
            if getattr(parameters, name) is not None:
                raise Unprocessable(f"{name} cannot be done by Moonshine; leave it out.")
        self.check_new_tokens(parameters)

    def settings(self, parameters: Any) -> dict[str, Any]:
        own: dict[str, Any] = parameters.for_generate
        return own

    def run(
        self, model: Model, batch: Tensors, settings: Mapping[str, Any], deadline: Deadline
    ) -> Mapping[str, torch.Tensor]:
        options = dict(settings)
        seed = options.pop("seed", None)
        seconds = batch["input_values"].shape[1] / self.sampling_rate
        # The model card's maximum has the token that begins a text.
        most = max(MIN_NEW_TOKENS, int(TOKENS_PER_SECOND * seconds) - 1)
        config = copy.deepcopy(self.base)
        config.num_beams = config.num_return_sequences = 1
        config.max_length, config.max_new_tokens = None, min(most, self.most_new_tokens)
        config.do_sample = bool(options.get("temperature"))
        if not config.do_sample:
            options.pop("temperature", None)
        config.update(**options)
        criterion = DeadlineCriterion(deadline)
        with seeded(seed):
            found = model.generate_outputs(
                batch, config, stopping_criteria=StoppingCriteriaList([criterion])
            )
        if criterion.reached:
            raise DeadlineExceeded
        return {"tokens": found}

    def decode(
        self, parameters: Any, rows: Sequence[SpeechRow], outputs: Sequence[Outputs]
    ) -> dict[str, Any]:
        texts = [
            self.tokenizer.decode(each["tokens"].astype(np.int64), skip_special_tokens=True)
            for each in outputs
        ]
        if len(texts) == 1:
            return {"text": texts[0]}
        return {"text": " ".join(text.strip() for text in texts if text.strip())}


def _code(language: str) -> str:
    """Return the code of a language, from its code, its name or its token."""
    word = language.lower()
    return str(WHISPER_LANGUAGE_CODES.get(word, word.removeprefix("<|").removesuffix("|>")))


def _timestamps(found: Mapping[str, Any]) -> torch.Tensor:
    """Return the time of each token in seconds, padded with zeros in shorter rows."""
    rows = [
        torch.cat([each["token_timestamps"] for each in segments]) if segments else torch.zeros(0)
        for segments in found["segments"]
    ]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)


def recognizer_of(checkpoint: Checkpoint, auto_class: str) -> Recognizer:
    """Return the recognizer of a checkpoint.

    Raises:
        WrongCheckpoint: its model writes texts, and is neither Whisper nor Moonshine.
    """
    if auto_class == "AutoModelForCTC":
        return CtcRecognizer(checkpoint)
    if checkpoint.config.model_type == WHISPER:
        return WhisperRecognizer(checkpoint)
    if checkpoint.config.model_type == MOONSHINE:
        return MoonshineRecognizer(checkpoint)
    raise WrongCheckpoint(
        "config.json",
        f"is that of a {checkpoint.config.model_type} model",
        "use a CTC model, Whisper or Moonshine for this mode",
    )
