"""Batches of prompts through `generate`: which prompts share one, and the new tokens of each."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from transformers import GenerationConfig, PreTrainedTokenizerBase, StoppingCriteriaList

from handlers.batching.padding import Padding, group_by_length, pad
from handlers.batching.rows import Outputs, RowOutcome
from handlers.batching.tokenization import Window
from handlers.errors import OutOfTime
from handlers.generation.parameters import GenerationParameters
from handlers.generation.randomness import seeded
from handlers.generation.stopping import PerRowStopStrings, StreamingCallback
from handlers.runtime.deadline import NO_DEADLINE, Deadline
from handlers.runtime.model import Model
from handlers.schemas.request import TextStream
from handlers.telemetry.meter import Meter

Ids = npt.NDArray[np.int64]
READ_PROMPT = {"repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "min_length": 0}


@dataclass(frozen=True)
class Prompt(Window):
    """The tokens of a prompt, its parameters, and the maximum number of new tokens."""

    parameters: GenerationParameters
    new_tokens: int
    stream: TextStream | None = None

    @property
    def is_streamed(self) -> bool:
        """Whether its text is sent while it is generated, which only a single text can be."""
        parameters = self.parameters
        single = parameters.num_beams * parameters.num_return_sequences == 1
        return self.stream is not None and single


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
        """Return the new tokens of each prompt; an error where the deadline left no time for it.

        `sequences` has them without the end token, and `ended` whether there was one; both have an
        entry for each sequence.
        """
        groups: defaultdict[Hashable, list[int]] = defaultdict(list)
        longest = max((prompt.new_tokens for prompt in prompts), default=0)
        for number, prompt in enumerate(prompts):
            groups[self._batch_key(number, prompt, longest)].append(number)
        results: dict[int, RowOutcome] = {}
        for numbers in groups.values():
            sizes = [_size(prompts[number]) for number in numbers]
            for part in group_by_length(sizes, budget):
                chosen = [numbers[place] for place in part]
                if self.deadline.passed:
                    results.update(dict.fromkeys(chosen, OutOfTime()))
                    continue
                together = self._generate_batch([prompts[number] for number in chosen])
                results.update(zip(chosen, together, strict=True))
        return [results[number] for number in range(len(prompts))]

    def _batch_key(self, number: int, prompt: Prompt, longest: int) -> Hashable:
        """Return a key that prompts must share to generate together with unchanged results.

        Seeded sampling is alone, since a batch shares its random numbers. A penalty on the prompt
        would include its padding, so it needs prompts of one length. Beams compare whole texts, so
        they must end at one length. Where the longest text would carry a prompt beyond the model's
        last position, it generates only with prompts of the same number of new tokens.
        """
        settings = prompt.parameters
        if settings.do_sample and settings.seed is not None:
            return number
        length = len(prompt) if self._reads_prompt(settings) else None
        beams = settings.num_beams > 1
        tight = self.limit is not None and len(prompt) + longest > self.limit
        ending = (prompt.new_tokens if beams or tight else None, settings.stop if beams else ())
        return length, ending, tuple(sorted(settings.for_generate.items()))

    def _reads_prompt(self, settings: GenerationParameters) -> bool:
        given = {**self.base.to_dict(), **settings.for_generate}
        return any(given.get(name) not in (None, neutral) for name, neutral in READ_PROMPT.items())

    def _generate_batch(self, prompts: Sequence[Prompt]) -> list[Outputs]:
        batch = pad(prompts, self.padding)
        width = batch["input_ids"].shape[1]
        stopping = self._stopping(prompts, width)
        with seeded(prompts[0].parameters.seed):
            ids = self.model.generate(batch, self._config(prompts), stopping_criteria=stopping)
        new = ids[:, width:].cpu().numpy().reshape(len(prompts), -1, ids.shape[1] - width)
        real = sum(map(len, prompts)) + new.size
        slots = batch["input_ids"].numel() + new.size
        self.meter.count(forwards=new.shape[-1], tokens=real, slots=slots)
        return [
            self._outputs([row[: prompt.new_tokens] for row in rows])
            for prompt, rows in zip(prompts, new, strict=True)
        ]

    def _stopping(self, prompts: Sequence[Prompt], width: int) -> StoppingCriteriaList:
        criteria = StoppingCriteriaList()
        ids = [prompt.features["input_ids"] for prompt in prompts]
        stops = [prompt.parameters.stop for prompt in prompts]
        if any(stops):
            criteria.append(PerRowStopStrings(self.tokenizer, ids, stops, width))
        if any(prompt.is_streamed for prompt in prompts):
            callback = StreamingCallback(
                self.tokenizer,
                prompts=ids,
                streams=[prompt.stream if prompt.is_streamed else None for prompt in prompts],
                stops=stops,
                limits=[prompt.new_tokens for prompt in prompts],
                ends=self._ends,
                width=width,
            )
            criteria.append(callback)
        return criteria

    def _config(self, prompts: Sequence[Prompt]) -> GenerationConfig:
        config = copy.deepcopy(self.base)
        config.update(
            **prompts[0].parameters.for_generate,
            max_new_tokens=max(prompt.new_tokens for prompt in prompts),
            max_length=None,
            pad_token_id=self.padding.ids["input_ids"],
        )
        return config

    def _outputs(self, sequences: Sequence[Ids]) -> Outputs:
        ends = [np.flatnonzero(np.isin(ids, self._ends)) for ids in sequences]
        pairs = zip(sequences, ends, strict=True)
        return {
            "sequences": [ids[: places[0]] if places.size else ids for ids, places in pairs],
            "ended": [bool(places.size) for places in ends],
        }

    @property
    def _ends(self) -> list[int]:
        """Ids of the tokens that end a text."""
        named = self.base.eos_token_id
        return [named] if isinstance(named, int) else list(named or ())


def _size(prompt: Prompt) -> int:
    copies = max(prompt.parameters.num_beams, prompt.parameters.num_return_sequences)
    return (len(prompt) + prompt.new_tokens) * copies
