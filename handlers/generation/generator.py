"""Batches of prompts through `generate`: which prompts share one, and the new tokens of each."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from transformers import (
    GenerationConfig,
    LogitsProcessorList,
    PreTrainedTokenizerBase,
    StoppingCriteriaList,
)

from handlers.batching.padding import Batch, Padding, group_by_length, pad
from handlers.batching.rows import RowOutcome
from handlers.batching.tokenization import Window
from handlers.errors import OutOfTime, RequestError, Unprocessable, attempt_all
from handlers.generation.decoding import WITH_SPECIAL_TOKENS, IncrementalDecoder
from handlers.generation.grammar import (
    CompiledGrammar,
    GrammarMatcher,
    GrammarProcessor,
)
from handlers.generation.logits import (
    LogprobRecorder,
    penalties_for,
    recorder_for,
    recording,
)
from handlers.generation.parameters import GenerationParameters
from handlers.generation.randomness import seeded
from handlers.generation.stopping import (
    BeamCriterion,
    Continuation,
    DeadlineCriterion,
    GeneratedText,
    LookupCriterion,
    RowCriterion,
    SequenceCriterion,
)
from handlers.generation.text_grammar import TextGrammar
from handlers.generation.tool_calls import ToolSyntax
from handlers.runtime.deadline import NO_DEADLINE, Deadline
from handlers.runtime.model import Model
from handlers.schemas.request import TextStream
from handlers.telemetry.meter import Meter

Ids = npt.NDArray[np.int64]
READ_PROMPT = {"repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "min_length": 0}


@dataclass(frozen=True)
class Prompt(Window):
    """The tokens of a prompt, its parameters, and the maximum number of new tokens.

    `compiled` is its grammar as `generate` needs it.
    """

    parameters: GenerationParameters
    new_tokens: int
    stream: TextStream | None = None
    grammar: TextGrammar | None = None
    syntax: ToolSyntax | None = None
    compiled: CompiledGrammar | None = None

    @property
    def sequences(self) -> int:
        return self.parameters.sequences

    @property
    def cost(self) -> int:
        return (len(self) + self.new_tokens) * self.sequences

    @property
    def is_streamed(self) -> bool:
        """Whether its text is sent while it is generated, which only a single text can be.

        The tokens of a prompt lookup are not certain before the model has confirmed them.
        """
        parameters = self.parameters
        single = parameters.num_beams * parameters.num_return_sequences == 1
        return self.stream is not None and single and not parameters.prompt_lookup_num_tokens

    def with_compiled_grammar(self) -> Prompt:
        """Return the prompt with its grammar compiled, if it has one.

        Raises:
            RequestError: it cannot be compiled, or this model cannot have grammars.
        """
        return replace(self, compiled=self.grammar.compile()) if self.grammar else self

    def may_repeat(self) -> bool:
        """Return whether its text may be generated again, because no part of it was sent."""
        return self.stream is None or not self.stream.emitted


@dataclass(frozen=True)
class Generator:
    """Generates texts.

    Attributes:
        model: the model.
        tokenizer: its tokenizer.
        base: the checkpoint's generation config; the parameters of a prompt take precedence.
        padding: the padding of prompts.
        meter: counts tokens and forwards.
        limit: the number of positions of the model, for a prompt and its new tokens.
        deadline: the time limit of the batch.
    """

    model: Model
    tokenizer: PreTrainedTokenizerBase
    base: GenerationConfig
    padding: Padding
    meter: Meter
    limit: int | None = None
    deadline: Deadline = NO_DEADLINE

    def generate(self, prompts: Sequence[Prompt], budget: int) -> list[RowOutcome]:
        """Return the new tokens of each prompt; an error where the deadline left no time for them.

        `sequences` has them without the end token, and `texts` the finished texts; both have an
        entry for each sequence. The batches with the fewest tokens run first, so that a large
        request delays no small ones.
        """
        results: dict[int, RowOutcome] = {}
        for numbers in self._batches(prompts, budget):
            chosen = [prompts[number] for number in numbers]
            # An error stays in its batch: texts of earlier ones may have been sent.
            outcomes = attempt_all(self._generate_in_time, chosen, Prompt.may_repeat)
            results.update(zip(numbers, outcomes, strict=True))
        return [results[number] for number in range(len(prompts))]

    def _batches(self, prompts: Sequence[Prompt], budget: int) -> list[list[int]]:
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

        Seeded sampling is alone, since a batch shares its random numbers, and so is prompt lookup.
        A repetition penalty would include the padding of a prompt, so it needs prompts of one
        length, as does a model that padding changes. Beams compare whole texts, so they must end at
        one length. Where the longest text would carry a prompt beyond the model's last position, or
        its last token is a fixed one, it generates only with prompts of the same number of new
        tokens.
        """
        settings = prompt.parameters
        is_seeded = settings.do_sample and settings.seed is not None
        if self.model.runs_alone or is_seeded or settings.prompt_lookup_num_tokens:
            return number
        alike = len(prompt) + longest > self.model.padded_limit or self._reads_prompt(settings)
        length = len(prompt) if alike else None
        beams = settings.num_beams > 1
        tight = self.limit is not None and len(prompt) + longest > self.limit
        forced = self.base.forced_eos_token_id is not None
        ending = (
            prompt.new_tokens if beams or tight or forced else None,
            settings.stop if beams else (),
        )
        return length, ending, tuple(sorted(settings.for_generate.items()))

    def _reads_prompt(self, settings: GenerationParameters) -> bool:
        given = {**self.base.to_dict(), **settings.for_generate}
        return any(given.get(name) not in (None, neutral) for name, neutral in READ_PROMPT.items())

    def _generate_in_time(self, prompts: Sequence[Prompt]) -> Sequence[RowOutcome]:
        if self.deadline.passed:
            return [OutOfTime() for _ in prompts]
        if prompts[0].parameters.prompt_lookup_num_tokens and not self.model.looks_up_prompts:
            sentence = "prompt_lookup_num_tokens cannot be done by this model; leave it out."
            return [Unprocessable(sentence) for _ in prompts]
        return self._generate_batch(prompts)

    def _generate_batch(self, prompts: Sequence[Prompt]) -> list[RowOutcome]:
        batch = pad(prompts, self.padding)
        width = batch["input_ids"].shape[1]
        deadline = DeadlineCriterion(self.deadline)
        settings = [prompt.parameters for prompt in prompts]
        recorder = recorder_for(settings)
        sequences = self._criterion(prompts, width, recorder)
        stopping = StoppingCriteriaList([deadline, sequences])
        matchers = _matchers(prompts)
        grammars = [GrammarProcessor(matchers, width)] if matchers else []
        processors = LogitsProcessorList([*penalties_for(settings, width), *grammars])
        with seeded(settings[0].seed):
            ids = self.model.generate(
                batch,
                self._config(prompts),
                stopping_criteria=stopping,
                logits_processor=processors,
                **recording(recorder),
            )
        new = ids[:, width:].cpu().numpy()
        self._count(batch, prompts, new)
        texts, copies = sequences.read(new.tolist()), len(new) // len(prompts)
        parts = [slice(start, start + copies) for start in range(0, len(new), copies)]
        return [
            _grammar_error(matchers, texts, part)
            or self._outcome(prompt, new[part], texts[part], out_of_time=deadline.reached)
            for prompt, part in zip(prompts, parts, strict=True)
        ]

    def _criterion(
        self, prompts: Sequence[Prompt], width: int, recorder: LogprobRecorder | None
    ) -> SequenceCriterion:
        # A special token may begin a tool call.
        plain = IncrementalDecoder(self.tokenizer)
        special = IncrementalDecoder(self.tokenizer, WITH_SPECIAL_TOKENS)
        continuations = [
            self._continuation(prompt, special if prompt.syntax else plain) for prompt in prompts
        ]
        if prompts[0].parameters.num_beams > 1:
            return BeamCriterion(continuations, width)
        if self._lookup(prompts[0]):
            return LookupCriterion(continuations, width)
        streams = [prompt.stream if prompt.is_streamed else None for prompt in prompts]
        return RowCriterion(continuations, width, streams, recorder)

    def _lookup(self, prompt: Prompt) -> int | None:
        """Return the number of tokens to look up, None where they may exceed the last position."""
        count = prompt.parameters.prompt_lookup_num_tokens
        if count and self.limit and len(prompt) + prompt.new_tokens + count > self.limit:
            return None
        return count

    def _continuation(self, prompt: Prompt, decoder: IncrementalDecoder) -> Continuation:
        return Continuation(
            decoder,
            prompt.features["input_ids"],
            prompt.parameters.stop,
            end_tokens(self.base),
            prompt.new_tokens,
            prompt.syntax,
        )

    def _count(self, batch: Batch, prompts: Sequence[Prompt], new: Ids) -> None:
        real = sum(map(len, prompts)) + new.size
        slots = batch["input_ids"].numel() + new.size
        self.meter.count(forwards=new.shape[1], tokens=real, slots=slots)

    def _config(self, prompts: Sequence[Prompt]) -> GenerationConfig:
        config = copy.deepcopy(self.base)
        config.update(
            **prompts[0].parameters.for_generate,
            max_new_tokens=max(prompt.new_tokens for prompt in prompts),
            max_length=None,
            pad_token_id=self.padding.ids["input_ids"],
        )
        config.prompt_lookup_num_tokens = self._lookup(prompts[0])
        return config

    @staticmethod
    def _outcome(
        prompt: Prompt, ids: Ids, texts: Sequence[GeneratedText], *, out_of_time: bool
    ) -> RowOutcome:
        """Return the outputs of a prompt whose sequences are finished.

        Beams are finished together only: one that has ended is not the best one for certain.
        """
        unfinished = any(text.finish_reason is None for text in texts)
        if out_of_time and (unfinished or prompt.parameters.num_beams > 1):
            return OutOfTime()
        lengths = [text.tokens - (text.finish_reason == "eos_token") for text in texts]
        sequences = [row[:length] for row, length in zip(ids, lengths, strict=True)]
        return {"sequences": sequences, "texts": texts}


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


def _grammar_error(
    matchers: Mapping[int, GrammarMatcher], texts: Sequence[GeneratedText], part: slice
) -> RequestError | None:
    """Return the error of the first row of a part that its grammar has ended; None if none has."""
    ended = (row for row in range(part.start, part.stop) if texts[row].finish_reason == "eos_token")
    errors = (matchers[row].error for row in ended if row in matchers)
    return next(filter(None, errors), None)
