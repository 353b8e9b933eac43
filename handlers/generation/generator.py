"""Batches of prompts through `generate`: which prompts share one, and the new tokens of each."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    PreTrainedTokenizerBase,
    StoppingCriteriaList,
)

from handlers.batching.batches import Batch, Padding, group_by_length, pad, stack
from handlers.batching.rows import Row, RowOutcome
from handlers.batching.tokenization import Window
from handlers.errors import (
    DeadlineExceeded,
    NotFinite,
    RequestError,
    Unprocessable,
    attempt,
    attempt_all,
)
from handlers.generation.decoding import IncrementalDecoder, decoders_of
from handlers.generation.grammar import (
    CompiledGrammar,
    GrammarMatcher,
    GrammarProcessor,
)
from handlers.generation.logits_processors import (
    PER_PROMPT,
    BatchRows,
    LogprobRecorder,
    PerPromptSampler,
    Sampling,
    banned_sequences,
    first_tokens_for,
    penalties_for,
    recorder_for,
    recording,
)
from handlers.generation.parameter_spec import specs_of
from handlers.generation.parameters import GenerationParameters
from handlers.generation.stopping import (
    BeamCriterion,
    DeadlineCriterion,
    GenerationState,
    LookupCriterion,
    OnEnd,
    RowCriterion,
    SequenceCriterion,
    StopTracker,
)
from handlers.generation.text_grammar import TextGrammar
from handlers.generation.tool_calls import ToolSyntax
from handlers.model import Model
from handlers.process.deadline import NO_DEADLINE, Deadline
from handlers.process.ranks import agree, seeded
from handlers.telemetry.metrics import Meter
from handlers.types.request import TextStream

Ids = npt.NDArray[np.int64]
# In no vocabulary. Where a config names no end token, `generate` takes the checkpoint's.
NO_TOKEN = [2**31 - 1]
# Makes end tokens likelier after as many tokens; None would be the checkpoint's value.
NO_DECAY = (2**31 - 1, 1.0)


class PromptLayout(ABC):
    """The rows that `generate` returns.

    Attributes:
        reads_prompt: the settings that read the tokens of a prompt, padding included, and their
            values that do not.
    """

    reads_prompt: ClassVar[Mapping[str, Any]]

    def collate(self, prompts: Sequence[Any], padding: Padding) -> Batch:
        """Return the model inputs of prompts, and of the images of all of them, as one batch."""
        return pad(prompts, padding) | join_media(prompts)

    def slots(self, batch: Batch) -> int:
        """Return the number of tokens that are computed for a batch before the new ones."""
        return batch["input_ids"].numel()

    @abstractmethod
    def first_column(self, batch: Batch) -> int:
        """Return the column of the first new token."""

    @abstractmethod
    def tokens_before(self, prompt: Row) -> Sequence[int]:
        """Return the tokens after which a new text is decoded."""

    @abstractmethod
    def row_length(self, prompt: Row, new_tokens: int) -> int:
        """Return the length of the longest row that is computed for a prompt."""


class DecoderOnly(PromptLayout):
    """New tokens follow their prompt, which is padded on the left."""

    reads_prompt: ClassVar[Mapping[str, Any]] = {
        **{
            name: spec.neutral
            for name, spec in specs_of(GenerationParameters).items()
            if spec.reads_prompt
        },
        "min_length": 0,
    }

    def first_column(self, batch: Batch) -> int:
        return int(batch["input_ids"].shape[1])

    def tokens_before(self, prompt: Row) -> Sequence[int]:
        return prompt.features["input_ids"]

    def row_length(self, prompt: Row, new_tokens: int) -> int:
        return len(prompt) + new_tokens


class EncoderDecoder(PromptLayout):
    """An encoder reads the prompt, and new tokens follow the token that a decoder starts with."""

    reads_prompt = {"encoder_repetition_penalty": 1.0, "encoder_no_repeat_ngram_size": 0}

    def first_column(self, batch: Batch) -> int:
        return 1

    def tokens_before(self, prompt: Row) -> Sequence[int]:
        return ()

    def row_length(self, prompt: Row, new_tokens: int) -> int:
        return max(len(prompt), 1 + new_tokens)


class ImageToText(PromptLayout):
    """New tokens follow the one that a decoder starts with, and a prompt is an image.

    Images of one batch have equal shapes.
    """

    reads_prompt: ClassVar[Mapping[str, Any]] = {}

    def collate(self, prompts: Sequence[Any], padding: Padding) -> Batch:
        return stack(prompts)

    def slots(self, batch: Batch) -> int:
        return 0

    def first_column(self, batch: Batch) -> int:
        return 1

    def tokens_before(self, prompt: Row) -> Sequence[int]:
        return ()

    def row_length(self, prompt: Row, new_tokens: int) -> int:
        return 1 + new_tokens


DECODER_ONLY = DecoderOnly()


ENCODER_DECODER = EncoderDecoder()


IMAGE_TO_TEXT = ImageToText()


def join_media(prompts: Sequence[Any]) -> Batch:
    """Return the model inputs of the images of all prompts, one after another."""
    return {
        name: torch.from_numpy(np.concatenate([prompt.media[name] for prompt in prompts]))
        for name in prompts[0].media
    }


@dataclass(frozen=True)
class Prompt(Window):
    """The tokens of a prompt, its parameters, and the maximum number of new tokens.

    `options` are further arguments of `generate`, and `first_token` is the one that the text must
    begin with, None for any. `result` makes the result of the task of a finished text, for streams.
    `compiled` is its grammar as `generate` needs it. `future` takes the
    outcome as soon as the prompt's own texts have ended; where it is cancelled, they go on no
    further. `media` are the model inputs of its images, whose first dimension is that of a batch or
    counts images or parts of them.
    """

    parameters: GenerationParameters
    new_tokens: int
    stream: TextStream | None = None
    grammar: TextGrammar | None = None
    syntax: ToolSyntax | None = None
    future: Future[RowOutcome] | None = None
    compiled: CompiledGrammar | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    first_token: int | None = None
    result: Callable[[GenerationState], Mapping[str, Any]] | None = None
    media: Mapping[str, np.ndarray[Any, Any]] = field(default_factory=dict)

    @property
    def media_shape(self) -> Hashable:
        """What the arrays of prompts in one batch have in common: all but their first size."""
        return tuple((name, array.shape[1:]) for name, array in sorted(self.media.items()))

    @property
    def for_generate(self) -> dict[str, Any]:
        """The arguments of `generate` that are its own."""
        return {**self.parameters.for_generate, **self.options}

    @property
    def sequences(self) -> int:
        return self.parameters.sequences

    @property
    def engine_texts(self) -> int:
        """How many texts an engine runs for it; a beam search has all of its beams in one."""
        return 1 if self.parameters.num_beams > 1 else self.parameters.num_return_sequences

    @property
    def adapters(self) -> list[str | None]:
        """The LoRA adapter of each of its sequences."""
        return [self.parameters.adapter_id] * self.sequences

    @property
    def cost(self) -> int:
        return (len(self) + self.new_tokens) * self.sequences

    @property
    def is_streamed(self) -> bool:
        """Whether its texts are sent while they are generated.

        Beams change their places. The tokens of a prompt lookup are not certain before the model
        has confirmed them.
        """
        parameters = self.parameters
        if self.stream is None or parameters.num_beams > 1 or parameters.prompt_lookup_num_tokens:
            return False
        return parameters.num_return_sequences == 1 or self.stream.sends_sequences

    def stream_of(self, number: int) -> TextStream | None:
        """Return what sends one of its texts while it is generated; None where nothing does."""
        return self.stream.of_sequence(number) if self.stream and self.is_streamed else None

    def ends(self, base: GenerationConfig) -> frozenset[int]:
        """Return the ids of the tokens that end its texts."""
        return self.parameters.ends(end_tokens(base))

    @property
    def is_followed(self) -> bool:
        """Whether its tokens are needed as they come: to send them, or to find a stop string."""
        return self.is_streamed or bool(self.parameters.stop)

    def stop_tracker(
        self,
        decoders: Mapping[bool, IncrementalDecoder],
        base: GenerationConfig,
        before: Sequence[int],
    ) -> StopTracker:
        """Return what follows its texts.

        Args:
            decoders: the decoders of the tokenizer, by whether they show special tokens.
            base: the checkpoint's generation config.
            before: the tokens after which they are decoded.
        """
        # A special token may begin a tool call.
        shows_special = bool(self.syntax) or not self.parameters.skip_special_tokens
        return StopTracker(
            decoders[shows_special],
            before,
            self.parameters.stop,
            self.ends(base),
            self.new_tokens,
            self.syntax,
            self.future,
            self.result,
        )

    def with_compiled_grammar(self) -> Prompt:
        """Return the prompt with its grammar compiled, if it has one.

        Raises:
            RequestError: it cannot be compiled, or this model cannot have grammars.
        """
        return replace(self, compiled=self.grammar.compile()) if self.grammar else self

    def may_repeat(self) -> bool:
        """Return whether its text may be generated again, because no part of it was sent."""
        is_done = self.future is not None and self.future.done()
        return not is_done and (self.stream is None or not self.stream.has_begun)

    def pass_on(self, outcome: RowOutcome) -> None:
        """Pass an outcome to the one who waits for it; nothing where it has one."""
        if self.future:
            with suppress(InvalidStateError):
                self.future.set_result(outcome)


@dataclass(frozen=True)
class Generator:
    """Generates texts.

    Attributes:
        model: the model.
        tokenizer: its tokenizer.
        base: the checkpoint's generation config; the parameters of a prompt take precedence.
        padding: the padding of prompts.
        meter: counts tokens and forwards.
        limit: the number of positions of the model, for the rows of its layout.
        deadline: the time limit of the batch.
        layout: where new tokens stand.
    """

    model: Model
    tokenizer: PreTrainedTokenizerBase
    base: GenerationConfig
    padding: Padding
    meter: Meter
    limit: int | None = None
    deadline: Deadline = NO_DEADLINE
    layout: PromptLayout = DECODER_ONLY

    def generate(self, prompts: Sequence[Prompt], budget: int) -> list[RowOutcome]:
        """Return the new tokens of each prompt; an error where the deadline left no time for them.

        `sequences` has them without the end token, and `texts` the finished texts; both have an
        entry for each sequence. The batches with the fewest tokens run first, so that a large
        request delays no small ones.
        """
        results: dict[int, RowOutcome] = {}
        for numbers in self.batches(prompts, budget):
            outcomes = self.generate_batch([prompts[number] for number in numbers])
            results.update(zip(numbers, outcomes, strict=True))
        return [results[number] for number in range(len(prompts))]

    def generate_batch(self, prompts: Sequence[Prompt]) -> list[RowOutcome]:
        """Return what :meth:`generate` does for the prompts of one of :meth:`batches`."""
        # An error stays in its batch: texts of earlier ones may have been sent.
        return attempt_all(self._generate_in_time, prompts, Prompt.may_repeat)

    def batches(self, prompts: Sequence[Prompt], budget: int) -> list[list[int]]:
        """Return the numbers of the prompts of each batch, the batch with fewest tokens first."""
        groups: defaultdict[Hashable, list[int]] = defaultdict(list)
        longest = max((prompt.new_tokens for prompt in prompts), default=0)
        for number, prompt in enumerate(prompts):
            groups[self._batch_key(number, prompt, longest)].append(number)
        batches = [
            [numbers[place] for place in part]
            for numbers in groups.values()
            for part in group_by_length([prompts[number].cost for number in numbers], budget)
        ]
        return sorted(batches, key=lambda batch: sum(prompts[number].cost for number in batch))

    def _batch_key(self, number: int, prompt: Prompt, longest: int) -> Hashable:
        """Return a key that prompts must share to generate together with unchanged results.

        Sampling by `generate` with a seed is alone, since a batch shares its random numbers, and so
        is prompt lookup.
        A setting that reads a prompt, such as the repetition penalty of a decoder, would include
        padding, so it needs prompts of one length, as does a model that padding changes. Beams
        compare whole texts, so they must end at one length. Where the longest text would carry a
        prompt beyond the model's last position, or its last token is a fixed one, it generates only
        with prompts of the same number of new tokens. Where the model does not mix LoRA adapters,
        so do prompts of one adapter. The images of prompts have equal shapes.
        """
        settings = prompt.parameters
        is_seeded = settings.do_sample and settings.seed is not None
        is_alone = is_seeded and not self._selects_tokens(prompt)
        if self.model.runs_alone or is_alone or settings.prompt_lookup_num_tokens:
            return number
        width = self.layout.row_length(prompt, longest)
        alike = width > self.model.padded_limit or self._reads_prompt(prompt)
        length = len(prompt) if alike else None
        beams = settings.num_beams > 1
        tight = self.limit is not None and width > self.limit
        forced = self.base.forced_eos_token_id is not None
        ending = (
            prompt.new_tokens if beams or tight or forced else None,
            settings.stop if beams else (),
            prompt.ends(self.base),
        )
        adapter = None if self.model.mixes_adapters else settings.adapter_id
        options = tuple(sorted(self._shared_options(prompt).items()))
        return length, ending, adapter, prompt.media_shape, options

    def _reads_prompt(self, prompt: Prompt) -> bool:
        given, neutral = {**self.base.to_dict(), **prompt.for_generate}, self.layout.reads_prompt
        return any(given.get(name) not in (None, value) for name, value in neutral.items())

    def _generate_in_time(self, prompts: Sequence[Prompt]) -> Sequence[RowOutcome]:
        if agree(self.deadline.passed):
            return [DeadlineExceeded() for _ in prompts]
        if prompts[0].parameters.prompt_lookup_num_tokens and not self.model.looks_up_prompts:
            sentence = "prompt_lookup_num_tokens cannot be done by this model; leave it out."
            return [Unprocessable(sentence) for _ in prompts]
        return self._generate_batch(prompts)

    def _generate_batch(self, prompts: Sequence[Prompt]) -> list[RowOutcome]:
        batch = self.layout.collate(prompts, self.padding)
        width = self.layout.first_column(batch)
        deadline = DeadlineCriterion(self.deadline)
        settings = [prompt.parameters for prompt in prompts]
        recorder = recorder_for(settings)
        matchers = _matchers(prompts)
        states = BatchRows()
        outcomes = _Outcomes(prompts, matchers, deadline, states)
        on_end = outcomes.pass_on if any(prompt.future for prompt in prompts) else None
        sequences = self._criterion(prompts, width, recorder, on_end, states, matchers)
        stopping = StoppingCriteriaList([deadline, sequences])
        grammars = [GrammarProcessor(matchers, width)] if matchers else []
        first = first_tokens_for([prompt.first_token for prompt in prompts], width)
        samplings = [self._sampling(prompt) for prompt in prompts]
        sampler = [PerPromptSampler(samplings, states)] if any(samplings) else []
        processors = LogitsProcessorList(
            [*self._penalties(settings, width), *grammars, *first, *sampler]
        )
        adapters = [name for prompt in prompts for name in prompt.adapters]
        with seeded(settings[0].seed), self.model.with_adapters(adapters):
            ids = self.model.generate(
                batch,
                self._config(prompts),
                stopping_criteria=stopping,
                logits_processor=processors,
                **recording(recorder),
                **self._assistance(prompts),
            )
        new = ids[:, width:].cpu().numpy()
        self._count(batch, prompts, new)
        copies = len(new) // len(prompts)
        of_prompts = [new[start : start + copies].tolist() for start in range(0, len(new), copies)]
        return [
            outcomes.outcome(number, tokens, sequences.read(number, tokens))
            for number, tokens in enumerate(of_prompts)
        ]

    def _penalties(
        self, settings: Sequence[GenerationParameters], width: int
    ) -> list[LogitsProcessor]:
        banned = [banned_sequences(self.tokenizer, each.bad_words) for each in settings]
        return penalties_for(settings, width, banned)

    def _selects_tokens(self, prompt: Prompt) -> bool:
        """Return whether the tokens of a prompt are selected here, and not by `generate`.

        It selects beams, the tokens that a prompt lookup confirms, and those with a watermark,
        which it adds after the filters of sampling.
        """
        settings = prompt.parameters
        others = settings.num_beams > 1 or settings.prompt_lookup_num_tokens
        return not (others or self.base.watermarking_config)

    def _shared_options(self, prompt: Prompt) -> dict[str, Any]:
        """Return the arguments of `generate` that all prompts of a batch have."""
        given = prompt.for_generate
        if not self._selects_tokens(prompt):
            return given
        shared = {name: value for name, value in given.items() if name not in PER_PROMPT}
        # `generate` returns several sequences of a prompt only if it samples, here from scores that
        # are minus infinity for all tokens but the selected ones.
        return {**shared, "do_sample": prompt.parameters.num_return_sequences > 1}

    def _sampling(self, prompt: Prompt) -> Sampling | None:
        """Return how the tokens of a prompt are drawn here; None if they are not."""
        settings = prompt.parameters
        if not (settings.do_sample and self._selects_tokens(prompt)):
            return None
        return Sampling.of(self.base, prompt.for_generate, settings.seed)

    def _criterion(
        self,
        prompts: Sequence[Prompt],
        width: int,
        recorder: LogprobRecorder | None,
        on_end: OnEnd | None,
        states: BatchRows,
        matchers: Mapping[int, GrammarMatcher],
    ) -> SequenceCriterion:
        decoders = decoders_of(self.tokenizer)
        trackers = [
            prompt.stop_tracker(decoders, self.base, self.layout.tokens_before(prompt))
            for prompt in prompts
        ]
        if prompts[0].parameters.num_beams > 1:
            return BeamCriterion(trackers, width)
        if self._lookup(prompts[0]) or self._is_assisted(prompts):
            return LookupCriterion(trackers, width)
        copies = prompts[0].parameters.num_return_sequences
        streams = [prompt.stream_of(copy) for prompt in prompts for copy in range(copies)]
        return RowCriterion(trackers, width, streams, recorder, on_end, states, matchers)

    def _lookup(self, prompt: Prompt) -> int | None:
        """Return the number of tokens to look up, None where they may exceed the last position."""
        count = prompt.parameters.prompt_lookup_num_tokens
        if count and self.limit and len(prompt) + prompt.new_tokens + count > self.limit:
            return None
        return count

    def _assistance(self, prompts: Sequence[Prompt]) -> dict[str, Any]:
        """Return the arguments of `generate` for the draft model; none where it is not used."""
        assistant, parameters = self.model.assistant, prompts[0].parameters
        if assistant is None or not self._is_assisted(prompts):
            return {}
        return assistant.for_generate(
            parameters.num_assistant_tokens, parameters.assistant_confidence_threshold
        )

    def _is_assisted(self, prompts: Sequence[Prompt]) -> bool:
        """Return whether the draft model is used: transformers drafts for one row at a time.

        The tokens of a draft are not certain, so a streamed text has none.
        """
        assistant, prompt = self.model.assistant, prompts[0]
        if assistant is None or len(prompts) > 1 or prompt.stream is not None or prompt.media:
            return False
        fits = assistant.limit is None or len(prompt) + prompt.new_tokens <= assistant.limit
        return fits and prompt.parameters.takes_drafts

    def _count(self, batch: Batch, prompts: Sequence[Prompt], new: Ids) -> None:
        real = sum(map(len, prompts)) + new.size
        slots = self.layout.slots(batch) + new.size
        self.meter.count(forwards=new.shape[1], tokens=real, slots=slots)

    def _config(self, prompts: Sequence[Prompt]) -> GenerationConfig:
        config = copy.deepcopy(self.base)
        config.eos_token_id = sorted(prompts[0].ends(self.base)) or NO_TOKEN
        config.update(
            **self._shared_options(prompts[0]),
            max_new_tokens=max(prompt.new_tokens for prompt in prompts),
            max_length=None,
            pad_token_id=self.padding.ids["input_ids"],
        )
        config.prompt_lookup_num_tokens = self._lookup(prompts[0])
        if config.eos_token_id == NO_TOKEN:
            config.exponential_decay_length_penalty = NO_DECAY
        return config


@dataclass(frozen=True)
class _Outcomes:
    """Makes the outcome of each prompt of a batch from its texts.

    Attributes:
        prompts: the prompts.
        matchers: the matcher of each row that has a grammar.
        deadline: ends the batch.
        states: the states of the rows.
    """

    prompts: Sequence[Prompt]
    matchers: Mapping[int, GrammarMatcher]
    deadline: DeadlineCriterion
    states: BatchRows

    def pass_on(
        self, number: int, tokens: Sequence[list[int]], texts: Sequence[GenerationState]
    ) -> None:
        """Pass the outcome of a prompt to the one who waits for it."""
        self.prompts[number].pass_on(self.outcome(number, tokens, texts))

    def outcome(
        self, number: int, tokens: Sequence[list[int]], texts: Sequence[GenerationState]
    ) -> RowOutcome:
        """Return the outputs of a prompt whose sequences are finished, or its error.

        Beams are finished together only: one that has ended is not the best one for certain.

        Args:
            number: the number of the prompt.
            tokens: the new tokens of each of its sequences.
            texts: their texts.
        """
        first = number * len(tokens)
        if not self.states.failed.isdisjoint(range(first, first + len(tokens))):
            return NotFinite(
                "The model computes no finite numbers for a token of this text; send another one,"
                " or set dtype: float32 in the YAML of the model."
            )
        if error := self._grammar_error(first, texts):
            return error
        unfinished = any(text.finish_reason is None for text in texts)
        beams = self.prompts[number].parameters.num_beams > 1
        if self.deadline.reached and (unfinished or beams):
            return DeadlineExceeded()
        lengths = [text.tokens - (text.finish_reason == "eos_token") for text in texts]
        sequences = [
            np.array(ids[:length], dtype=np.int64)
            for ids, length in zip(tokens, lengths, strict=True)
        ]
        return {"sequences": sequences, "texts": texts}

    def _grammar_error(self, first: int, texts: Sequence[GenerationState]) -> RequestError | None:
        """Return the error of the first row that its grammar has ended; None if none has."""
        rows = enumerate(texts, first)
        ended = (row for row, text in rows if text.finish_reason == "eos_token")
        errors = (self.matchers[row].error for row in ended if row in self.matchers)
        return next(filter(None, errors), None)


def with_grammars(
    generate: Callable[[Sequence[Prompt]], Sequence[RowOutcome]], prompts: Sequence[Prompt]
) -> list[RowOutcome]:
    """Return what a function generates for prompts, with their grammars compiled.

    A prompt whose grammar cannot be compiled has its error, and is not passed to the function.
    """
    prepared = [attempt(Prompt.with_compiled_grammar, prompt) for prompt in prompts]
    outcomes = iter(generate([prompt for prompt in prepared if isinstance(prompt, Prompt)]))
    return [next(outcomes) if isinstance(each, Prompt) else each for each in prepared]


def end_tokens(base: GenerationConfig) -> frozenset[int]:
    """Return the ids of the tokens that end a text."""
    named = base.eos_token_id
    return frozenset([named] if isinstance(named, int) else named or ())


def _matchers(prompts: Sequence[Prompt]) -> dict[int, GrammarMatcher]:
    """Return the matcher of each row whose prompt has a grammar."""
    copies = prompts[0].parameters.num_return_sequences
    return {
        number * copies + copy: prompt.compiled.matcher()
        for number, prompt in enumerate(prompts)
        if prompt.compiled
        for copy in range(copies)
    }
