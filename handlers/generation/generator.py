"""Batches of prompts through `generate`: which prompts share one, and the new tokens of each."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from transformers import (
    GenerationConfig,
    LogitsProcessorList,
    PreTrainedTokenizerBase,
    StoppingCriteriaList,
)

from ..batching.padding import Padding, Tensors, group_by_length, pad, stack
from ..batching.rows import Row, RowOutcome
from ..batching.tokenization import Window
from ..compat.transformers import run_before_other_processors
from ..errors import DeadlineExceeded, NotFinite, RequestError, Unprocessable, attempt, attempt_all
from ..model import Model
from ..process.deadline import NO_DEADLINE, Deadline
from ..process.ranks import seeded
from ..telemetry.metrics import Meter
from ..types.request import GeneratedToken, TextStream
from .detokenization import IncrementalDecoder, decoders_of
from .grammar import CompiledGrammar, GrammarMatcher, GrammarProcessor
from .logits_processors import (
    PER_PROMPT,
    BatchRows,
    LogprobRecorder,
    PerPromptSampler,
    PerRowFirstToken,
    PerRowPenalties,
    Sampling,
    banned_sequences,
    check_prompt_scores,
    prompt_scores,
)
from .message import MessageSyntax
from .parameters import GenerationParameters, specs_of
from .stopping import (
    BeamCriterion,
    DeadlineCriterion,
    GenerationState,
    OnEnd,
    PromptLookupCriterion,
    RowCriterion,
    RowTexts,
    SequenceCriterion,
    StopTracker,
)
from .text_grammar import TextGrammar

Ids = npt.NDArray[np.int64]
NOT_FINITE = (
    "The model computes no finite numbers for a token of this text; send another one, or set dtype:"
    " float32 in the YAML of the model."
)
# In no vocabulary. Where a config names no end token, `generate` takes the checkpoint's.
NO_TOKEN = [2**31 - 1]
# A length penalty that never starts; for None, `generate` takes the checkpoint's.
NO_DECAY = (2**31 - 1, 1.0)


class PromptLayout(ABC):
    """Where the new tokens stand in the rows that `generate` returns.

    Attributes:
        reads_prompt: the settings that read the tokens of a prompt, padding included, and the
            values with which they do not.
    """

    reads_prompt: ClassVar[Mapping[str, Any]] = {}

    def collate(self, prompts: Sequence[Any], padding: Padding) -> Tensors:
        """Return the model inputs of prompts, and of the images of all of them, as one batch."""
        return pad(prompts, padding) | join_media(prompts)

    def slots(self, batch: Tensors) -> int:
        """Return the number of tokens that are computed for a batch before the new ones."""
        return batch["input_ids"].numel()

    def first_column(self, batch: Tensors) -> int:
        """Return the column of the first new token."""
        return 1

    def tokens_before(self, prompt: Row) -> Sequence[int]:
        """Return the tokens after which new ones are decoded."""
        return ()

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

    def first_column(self, batch: Tensors) -> int:
        return int(batch["input_ids"].shape[1])

    def tokens_before(self, prompt: Row) -> Sequence[int]:
        return prompt.features["input_ids"]

    def row_length(self, prompt: Row, new_tokens: int) -> int:
        return len(prompt) + new_tokens


class EncoderDecoder(PromptLayout):
    """An encoder reads the prompt, and new tokens follow the decoder's start token."""

    reads_prompt = {"encoder_repetition_penalty": 1.0, "encoder_no_repeat_ngram_size": 0}

    def row_length(self, prompt: Row, new_tokens: int) -> int:
        return max(len(prompt), 1 + new_tokens)


class ImageToText(PromptLayout):
    """A prompt is an image, and new tokens follow the decoder's start token.

    The images of one batch have equal shapes.
    """

    def collate(self, prompts: Sequence[Any], padding: Padding) -> Tensors:
        return stack(prompts)

    def slots(self, batch: Tensors) -> int:
        return 0

    def row_length(self, prompt: Row, new_tokens: int) -> int:
        return 1 + new_tokens


DECODER_ONLY = DecoderOnly()
ENCODER_DECODER = EncoderDecoder()
IMAGE_TO_TEXT = ImageToText()


def join_media(prompts: Sequence[Any]) -> Tensors:
    """Return the model inputs of the images of all prompts, one after another."""
    return {
        name: torch.from_numpy(np.concatenate([prompt.media[name] for prompt in prompts]))
        for name in prompts[0].media
    }


@dataclass(frozen=True)
class Prompt(Window):
    """The tokens of a prompt, its parameters, and the maximum number of new tokens.

    Attributes:
        compiled: the grammar as `generate` needs it.
        future: takes the outcome as soon as all sequences of the prompt have ended; its
            cancellation ends them.
        options: further arguments of `generate`.
        first_token: the first new token; None for any.
        result: makes the task's result of a finished sequence, for streams.
        media: the model inputs of the images. Their first dimension counts images, or their parts.
        prompt_tokens: its tokens with their log probabilities, once they are computed.
    """

    parameters: GenerationParameters
    new_tokens: int
    stream: TextStream | None = None
    grammar: TextGrammar | None = None
    syntax: MessageSyntax | None = None
    future: Future[RowOutcome] | None = None
    compiled: CompiledGrammar | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    first_token: int | None = None
    result: Callable[[GenerationState], Mapping[str, Any]] | None = None
    media: Mapping[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    prompt_tokens: Sequence[GeneratedToken] = ()

    @property
    def media_shape(self) -> Hashable:
        """The shapes of the images without their first dimension; equal within a batch."""
        return tuple((name, array.shape[1:]) for name, array in sorted(self.media.items()))

    @cached_property
    def for_generate(self) -> Mapping[str, Any]:
        """The arguments of `generate`, without those of this package's logits processors."""
        return {**self.parameters.for_generate, **self.options}

    @property
    def sequences(self) -> int:
        return self.parameters.sequences

    @property
    def backend_sequences(self) -> int:
        """The number of sequences that a back end runs; a beam search is one of them."""
        return 1 if self.parameters.num_beams > 1 else self.parameters.num_return_sequences

    @property
    def cost(self) -> int:
        return (len(self) + self.new_tokens) * self.sequences

    @property
    def is_streamed(self) -> bool:
        """Whether text is sent while it is generated.

        Beams change their places, and the tokens of a prompt lookup are not certain before the
        model has confirmed them.
        """
        parameters = self.parameters
        if self.stream is None or parameters.num_beams > 1 or parameters.prompt_lookup_num_tokens:
            return False
        return parameters.num_return_sequences == 1 or self.stream.sends_sequences

    @property
    def shows_special(self) -> bool:
        """Whether the text has special tokens, as around thoughts and tool calls."""
        marks = self.syntax is not None and self.syntax.shows_special
        return marks or not self.parameters.skip_special_tokens

    def stream_of(self, number: int) -> TextStream | None:
        """Return the stream of one sequence; None where its text is not streamed."""
        return self.stream.of_sequence(number) if self.stream and self.is_streamed else None

    def end_tokens(self, generation_config: GenerationConfig) -> frozenset[int]:
        """Return the ids of the tokens that end a sequence."""
        return self.parameters.end_tokens(end_tokens(generation_config))

    @property
    def is_incremental(self) -> bool:
        """Whether tokens are needed as they come: to send them, or to find a stop string."""
        return self.is_streamed or bool(self.parameters.stop)

    def prompt_tracker(self, decoders: Mapping[bool, IncrementalDecoder]) -> StopTracker:
        """Return the tracker that reads the tokens of the prompt, as if they were generated."""
        decoder = decoders[not self.parameters.skip_special_tokens]
        return StopTracker(decoder, (), (), frozenset(), len(self))

    def stop_tracker(
        self,
        decoders: Mapping[bool, IncrementalDecoder],
        generation_config: GenerationConfig,
        before: Sequence[int],
    ) -> StopTracker:
        """Return the tracker of the sequences.

        Args:
            decoders: the decoders of the tokenizer, by whether they show special tokens.
            generation_config: the checkpoint's.
            before: the tokens after which new ones are decoded.
        """
        shows_special = self.shows_special
        decoder, ends = decoders[shows_special], self.end_tokens(generation_config)
        return StopTracker(
            decoder,
            before,
            self.parameters.stop,
            ends,
            self.new_tokens,
            self._shown(ends, decoder),
            self.syntax,
            self.future,
            self.result,
            keeps_ids=self.parameters.return_token_ids,
        )

    def _shown(self, ends: frozenset[int], decoder: IncrementalDecoder) -> frozenset[int]:
        """Return the end tokens that are part of the text.

        The pipelines of transformers omit special tokens only. The request's own stop tokens are
        omitted, as vLLM does, and the end of a text that a grammar or the syntax of tools reads.
        """
        if self.grammar or (self.syntax and self.syntax.tools):
            return frozenset()
        own = ends.difference(self.parameters.stop_token_ids)
        return frozenset(token for token in own if decoder.has_text(token))

    def with_compiled_grammar(self) -> Prompt:
        """Return the prompt with its grammar compiled, if it has one.

        Raises:
            RequestError: the grammar cannot be compiled, or this model does not support grammars.
        """
        return replace(self, compiled=self.grammar.compile()) if self.grammar else self

    def may_repeat(self) -> bool:
        """Return whether the text may be generated again, because no part of it was sent."""
        is_done = self.future is not None and self.future.done()
        return not is_done and (self.stream is None or not self.stream.has_begun)

    def resolve(self, outcome: RowOutcome) -> None:
        """Set the result of `future`, unless it has one."""
        if self.future:
            with suppress(InvalidStateError):
                self.future.set_result(outcome)


@dataclass(frozen=True)
class Generator:
    """Generates text with `generate`.

    Attributes:
        generation_config: the checkpoint's; the parameters of a prompt take precedence.
        padding: the padding of prompts.
        limit: the number of positions of the model.
        layout: where new tokens stand.
    """

    model: Model
    tokenizer: PreTrainedTokenizerBase
    generation_config: GenerationConfig
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
        outcomes: dict[int, RowOutcome] = {}
        compiled: dict[int, Prompt] = {}
        for number, prompt in enumerate(prompts):
            prepared = attempt(Prompt.with_compiled_grammar, prompt)
            if isinstance(prepared, Prompt):
                compiled[number] = prepared
            else:
                outcomes[number] = prepared
        numbers, ready = list(compiled), list(compiled.values())
        for batch in self.batches(ready, budget):
            generated = self.generate_batch([ready[place] for place in batch])
            outcomes.update(zip([numbers[place] for place in batch], generated, strict=True))
        return [outcomes[number] for number in range(len(prompts))]

    def generate_batch(self, prompts: Sequence[Prompt]) -> list[RowOutcome]:
        """Return what :meth:`generate` does for the prompts of one of :meth:`batches`."""
        # An error stays in its batch: texts of earlier ones may have been sent.
        return attempt_all(self._generate_in_time, prompts, Prompt.may_repeat)

    def batches(self, prompts: Sequence[Prompt], budget: int) -> list[list[int]]:
        """Return the numbers of the prompts of each batch, the batch with fewest tokens first."""
        if len(prompts) == 1:
            return [[0]]
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

        A batch shares the random numbers of `generate`, so a prompt with a seed that `generate`
        samples is alone, and so is prompt lookup. A setting that reads a prompt, such as the
        repetition penalty of a decoder, would include padding, so it needs prompts of one length,
        as does a model that padding changes. Beams compare whole texts, so they must end at one
        length. Where the longest text would carry a prompt beyond the model's last position, or the
        last token is forced, prompts must have the same number of new tokens. Where the model does
        not mix LoRA adapters, prompts must have one adapter. Images must have equal shapes.
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
        forced = self.generation_config.forced_eos_token_id is not None
        ending = (
            prompt.new_tokens if beams or tight or forced else None,
            settings.stop if beams else (),
            prompt.end_tokens(self.generation_config),
        )
        adapter = None if self.model.capabilities.mixes_adapters else settings.adapter_id
        options = tuple(sorted(self._shared_options(prompt).items()))
        writes = prompt.new_tokens > 0
        return length, ending, adapter, prompt.media_shape, options, writes

    def _reads_prompt(self, prompt: Prompt) -> bool:
        given = {**self.generation_config.to_dict(), **prompt.for_generate}
        neutral = self.layout.reads_prompt
        return any(given.get(name) not in (None, value) for name, value in neutral.items())

    def _generate_in_time(self, prompts: Sequence[Prompt]) -> Sequence[RowOutcome]:
        if self.deadline.passed_together():
            return [DeadlineExceeded() for _ in prompts]
        if (
            prompts[0].parameters.prompt_lookup_num_tokens
            and not self.model.capabilities.supports_prompt_lookup
        ):
            sentence = "prompt_lookup_num_tokens is not supported by this model; leave it out."
            return [Unprocessable(sentence) for _ in prompts]
        scored = [attempt(self._with_prompt_tokens, prompt) for prompt in prompts]
        ready = [each for each in scored if isinstance(each, Prompt)]
        write = self._generate_batch if prompts[0].new_tokens else self._without_new_tokens
        outcomes = iter(write(ready) if ready else ())
        return [next(outcomes) if isinstance(each, Prompt) else each for each in scored]

    def _with_prompt_tokens(self, prompt: Prompt) -> Prompt:
        """Return a prompt with the log probabilities of its tokens, if they are requested.

        Each prompt runs alone, so that they do not depend on others.

        Raises:
            RequestTooLarge: the scores of all tokens take too much memory.
            NotFinite: some of them are no numbers.
        """
        if not prompt.parameters.scores_prompt:
            return prompt
        check_prompt_scores(len(prompt), len(self.tokenizer))
        ids = torch.tensor(prompt.features["input_ids"])
        batch = self.layout.collate([prompt], replace(self.padding, side="right"))
        with self.model.with_adapters([prompt.parameters.adapter_id]):
            logits = self.model.forward(batch)["logits"][0]
        if logits.isnan().any():
            raise NotFinite(NOT_FINITE)
        self.meter.count(forwards=1, tokens=len(prompt), slots=len(prompt))
        scores = prompt_scores(logits, ids, prompt.parameters.top_n_tokens)
        tracker = prompt.prompt_tracker(decoders_of(self.tokenizer))
        state = tracker.start()
        for token, each in zip(ids.tolist(), scores, strict=True):
            state = tracker.add(state, token, each)
        return replace(prompt, prompt_tokens=state.recorded_tokens())

    def _without_new_tokens(self, prompts: Sequence[Prompt]) -> list[RowOutcome]:
        """Return the outcomes of prompts to which no token is added."""
        decoders, config = decoders_of(self.tokenizer), self.generation_config
        outcomes: list[RowOutcome] = []
        for prompt in prompts:
            tracker = prompt.stop_tracker(decoders, config, self.layout.tokens_before(prompt))
            text = replace(tracker.read([]), prompt=prompt.prompt_tokens)
            count = prompt.sequences
            none = np.array([], dtype=np.int64)
            outcomes.append({"sequences": [none] * count, "texts": [text] * count})
        return outcomes

    def _generate_batch(self, prompts: Sequence[Prompt]) -> list[RowOutcome]:
        batch = self.layout.collate(prompts, self.padding)
        width = self.layout.first_column(batch)
        run = _BatchRun(prompts, width, DeadlineCriterion(self.deadline))
        criterion = self._criterion(run)
        with _seeded(prompts), self.model.with_adapters(run.adapters):
            ids = self.model.generate(
                batch,
                self._config(prompts),
                stopping_criteria=StoppingCriteriaList([run.deadline, criterion]),
                logits_processor=self._processors(run),
                **(run_before_other_processors(run.recorder) if run.recorder else {}),
                **self._assistance(prompts),
            )
        new = ids[:, width:].cpu().numpy()
        self._count(batch, prompts, new)
        of_prompts = enumerate(part.tolist() for part in np.split(new, len(prompts)))
        return [
            run.outcome(number, tokens, criterion.read(number, tokens))
            for number, tokens in of_prompts
        ]

    def _processors(self, run: _BatchRun) -> LogitsProcessorList:
        """Return the logits processors of the settings that `generate` does not have per prompt."""
        settings, processors = run.settings, LogitsProcessorList()
        if any(each.changes_logits for each in settings):
            banned = [banned_sequences(self.tokenizer, each.bad_words) for each in settings]
            processors.append(PerRowPenalties(settings, run.width, banned))
        if run.rows.matchers:
            processors.append(GrammarProcessor(run.rows.matchers, run.width))
        first_tokens = [prompt.first_token for prompt in run.prompts]
        if any(token is not None for token in first_tokens):
            processors.append(PerRowFirstToken(first_tokens, run.width))
        samplings = [self._sampling(prompt) for prompt in run.prompts]
        if any(samplings):
            processors.append(PerPromptSampler(samplings, run.rows))
        return processors

    def _selects_tokens(self, prompt: Prompt) -> bool:
        """Return whether a logits processor selects the tokens of a prompt, and not `generate`.

        `generate` selects beams, the tokens that a prompt lookup confirms, and those with a
        watermark, which it adds after the filters of sampling.
        """
        settings = prompt.parameters
        others = settings.num_beams > 1 or settings.prompt_lookup_num_tokens
        return not (others or self.generation_config.watermarking_config)

    def _shared_options(self, prompt: Prompt) -> Mapping[str, Any]:
        """Return the arguments of `generate` that all prompts of a batch have."""
        given = prompt.for_generate
        if not self._selects_tokens(prompt):
            return given
        shared = {name: value for name, value in given.items() if name not in PER_PROMPT}
        # `generate` returns several sequences of a prompt only if it samples, here from scores that
        # are minus infinity for all tokens but the selected ones.
        return {**shared, "do_sample": prompt.parameters.num_return_sequences > 1}

    def _sampling(self, prompt: Prompt) -> Sampling | None:
        """Return how a logits processor draws the tokens of a prompt; None if it does not."""
        settings = prompt.parameters
        if not (settings.do_sample and self._selects_tokens(prompt)):
            return None
        return Sampling.of(self.generation_config, prompt.for_generate, settings.seed)

    def _criterion(self, run: _BatchRun) -> SequenceCriterion:
        prompts, width = run.prompts, run.width
        decoders, config = decoders_of(self.tokenizer), self.generation_config
        trackers = [
            prompt.stop_tracker(decoders, config, self.layout.tokens_before(prompt))
            for prompt in prompts
        ]
        if prompts[0].parameters.num_beams > 1:
            return BeamCriterion(trackers, width)
        if self._lookup(prompts[0]) or self._is_assisted(prompts):
            return PromptLookupCriterion(trackers, width)
        copies = prompts[0].parameters.num_return_sequences
        streams = [prompt.stream_of(copy) for prompt in prompts for copy in range(copies)]
        texts = RowTexts(streams, run.recorder, run.rows)
        return RowCriterion(trackers, width, texts, run.rows, run.on_end)

    def _lookup(self, prompt: Prompt) -> int | None:
        """Return the number of tokens to look up, None where they may exceed the last position."""
        count = prompt.parameters.prompt_lookup_num_tokens
        if self._ends_with_end_token(prompt):
            return None
        if count and self.limit and len(prompt) + prompt.new_tokens + count > self.limit:
            return None
        return count

    def _ends_with_end_token(self, prompt: Prompt) -> bool:
        """Return whether a prompt ends with an end token of its text.

        With drafted tokens transformers takes such a prompt for a text that has ended, and adds
        nothing to it.
        """
        before = self.layout.tokens_before(prompt)
        return len(before) > 0 and before[-1] in prompt.end_tokens(self.generation_config)

    def _assistance(self, prompts: Sequence[Prompt]) -> Mapping[str, Any]:
        """Return the arguments of `generate` for the draft model; none where it is not used."""
        assistant, parameters = self.model.assistant, prompts[0].parameters
        if assistant is None or not self._is_assisted(prompts):
            return {}
        return assistant.for_generate(
            parameters.num_assistant_tokens, parameters.assistant_confidence_threshold
        )

    def _is_assisted(self, prompts: Sequence[Prompt]) -> bool:
        """Return whether the draft model is used: transformers drafts for one row at a time.

        The tokens of a draft are not certain, so it is not used for streams.
        """
        assistant, prompt = self.model.assistant, prompts[0]
        if assistant is None or len(prompts) > 1 or prompt.stream is not None or prompt.media:
            return False
        fits = assistant.limit is None or len(prompt) + prompt.new_tokens <= assistant.limit
        if self._ends_with_end_token(prompt):
            return False
        return fits and prompt.parameters.supports_assistant

    def _count(self, batch: Tensors, prompts: Sequence[Prompt], new: Ids) -> None:
        real = sum(map(len, prompts)) + new.size
        slots = self.layout.slots(batch) + new.size
        self.meter.count(forwards=new.shape[1], tokens=real, slots=slots)

    def _config(self, prompts: Sequence[Prompt]) -> GenerationConfig:
        config = copy.deepcopy(self.generation_config)
        config.eos_token_id = sorted(prompts[0].end_tokens(config)) or NO_TOKEN
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


class _BatchRun:
    """One call of `generate`: its prompts, the states of their rows, and their outcomes.

    Attributes:
        width: the length of the padded prompts.
        rows: the states of the rows. Each prompt has the same number of them.
        recorder: has the log probabilities of recorded tokens; None if no tokens are recorded.
        on_end: is called once all rows of a prompt have ended; None if no request waits for that.
    """

    def __init__(self, prompts: Sequence[Prompt], width: int, deadline: DeadlineCriterion) -> None:
        self.prompts, self.width, self.deadline = prompts, width, deadline
        self.settings = [prompt.parameters for prompt in prompts]
        self.rows = BatchRows(matchers=_matchers(prompts))
        records = any(each.returns_logprobs for each in self.settings)
        self.recorder = LogprobRecorder(self.settings) if records else None
        self.on_end: OnEnd | None = (
            self._resolve if any(prompt.future for prompt in prompts) else None
        )

    @property
    def adapters(self) -> list[str | None]:
        """The adapter of each row that is computed, the beams of a prompt included."""
        return [each.adapter_id for each in self.settings for _ in range(each.sequences)]

    def _resolve(
        self, number: int, tokens: Sequence[list[int]], texts: Sequence[GenerationState]
    ) -> None:
        """Set the outcome of a prompt, which a request waits for."""
        self.prompts[number].resolve(self.outcome(number, tokens, texts))

    def outcome(
        self, number: int, tokens: Sequence[list[int]], texts: Sequence[GenerationState]
    ) -> RowOutcome:
        """Return the outputs of a prompt whose sequences are finished, or its error.

        Beams finish together only: one that has ended need not be the best one.

        Args:
            number: the number of the prompt.
            tokens: the new tokens of each of its sequences.
            texts: their states.
        """
        first = number * len(tokens)
        if not self.rows.failed.isdisjoint(range(first, first + len(tokens))):
            return NotFinite(NOT_FINITE)
        if self.rows.matchers and (error := self._grammar_error(first, texts)):
            return error
        unfinished = any(text.finish_reason is None for text in texts)
        beams = self.prompts[number].parameters.num_beams > 1
        if self.deadline.reached and (unfinished or beams):
            return DeadlineExceeded()
        sequences = [
            np.array(ids[: text.kept_tokens], dtype=np.int64)
            for ids, text in zip(tokens, texts, strict=True)
        ]
        prompt_tokens = self.prompts[number].prompt_tokens
        return {
            "sequences": sequences,
            "texts": [replace(text, prompt=prompt_tokens) for text in texts],
        }

    def _grammar_error(self, first: int, texts: Sequence[GenerationState]) -> RequestError | None:
        """Return the error of the first row that its grammar has ended; None if none has."""
        rows, matchers = enumerate(texts, first), self.rows.matchers
        ended = (row for row, text in rows if text.finish_reason == "eos_token")
        errors = (matchers[row].error for row in ended if row in matchers)
        return next(filter(None, errors), None)


def end_tokens(generation_config: GenerationConfig) -> frozenset[int]:
    """Return the ids of the checkpoint's end tokens."""
    named = generation_config.eos_token_id
    return frozenset([named] if isinstance(named, int) else named or ())


def _seeded(prompts: Sequence[Prompt]) -> AbstractContextManager[None]:
    """Return a context in which random numbers follow the seed, if tokens are sampled."""
    samples = any(prompt.parameters.do_sample for prompt in prompts)
    return seeded(prompts[0].parameters.seed) if samples else nullcontext()


def _matchers(prompts: Sequence[Prompt]) -> dict[int, GrammarMatcher]:
    copies = prompts[0].parameters.num_return_sequences
    return {
        number * copies + copy: prompt.compiled.matcher()
        for number, prompt in enumerate(prompts)
        if prompt.compiled
        for copy in range(copies)
    }
