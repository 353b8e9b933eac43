"""Which prompts generate together, and each one's new tokens."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from transformers import GenerationConfig, PreTrainedTokenizerBase, StoppingCriteriaList

from handlers.batching.padding import Padding, group_by_length, pad
from handlers.batching.rows import Outputs
from handlers.batching.tokenization import Window
from handlers.generation.parameters import GenerationParameters
from handlers.generation.randomness import seeded
from handlers.generation.stopping import PerRowStopStrings
from handlers.generation.streaming import StreamingCallback
from handlers.runtime.model import Model
from handlers.schemas.request import TextStream
from handlers.telemetry.meter import Meter

Ids = npt.NDArray[np.int64]
LOOK_AT_PROMPT = {"repetition_penalty": 1.0, "no_repeat_ngram_size": 0, "min_length": 0}


@dataclass(frozen=True)
class Prompt(Window):
    """A prompt's tokens, its settings and how many tokens it may get."""

    parameters: GenerationParameters
    new_tokens: int
    stream: TextStream | None = None

    @property
    def tells(self) -> bool:
        """Whether somebody hears its text while it is made; several texts at once nobody can."""
        settings = self.parameters
        return self.stream is not None and settings.num_beams * settings.num_return_sequences == 1


@dataclass(frozen=True)
class Generator:
    """Everything that generating needs beside the prompts.

    `base` is the checkpoint's own generation config; a prompt's settings go over it. `limit` is
    how many tokens, prompt and new ones together, the model has positions for.
    """

    model: Model
    tokenizer: PreTrainedTokenizerBase
    base: GenerationConfig
    padding: Padding
    meter: Meter
    limit: int | None = None

    def all(self, prompts: Sequence[Prompt], budget: int) -> list[Outputs]:
        """Return `sequences` for each prompt, its new tokens, and `ended`, whether it ended itself.

        Both have an entry for each sequence.
        """
        groups: defaultdict[Hashable, list[int]] = defaultdict(list)
        most = max((prompt.new_tokens for prompt in prompts), default=0)
        for number, prompt in enumerate(prompts):
            groups[self._company(number, prompt, most)].append(number)
        results: dict[int, Outputs] = {}
        for numbers in groups.values():
            sizes = [_size(prompts[number]) for number in numbers]
            for part in group_by_length(sizes, budget):
                chosen = [numbers[place] for place in part]
                together = self._together([prompts[number] for number in chosen])
                results.update(zip(chosen, together, strict=True))
        return [results[number] for number in range(len(prompts))]

    def _company(self, number: int, prompt: Prompt, most: int) -> Hashable:
        """Return what prompts must have in common to generate together, with the same results.

        A seeded draw is alone, since a batch shares its random numbers. A penalty that reads the
        prompt would read its padding, so it needs prompts of one length. Beams compare whole
        answers, so they must end at one length. Where the longest answer of all would carry a
        prompt beyond the model's last position, it is with those that end when it does.
        """
        settings = prompt.parameters
        if settings.do_sample and settings.seed is not None:
            return number
        length = len(prompt) if self._looks_at_prompt(settings) else None
        beams = settings.num_beams > 1
        tight = self.limit is not None and len(prompt) + most > self.limit
        ending = (prompt.new_tokens if beams or tight else None, settings.stop if beams else ())
        return length, ending, tuple(sorted(settings.for_generate.items()))

    def _looks_at_prompt(self, settings: GenerationParameters) -> bool:
        given = {**self.base.to_dict(), **settings.for_generate}
        return any(given.get(name) not in (None, idle) for name, idle in LOOK_AT_PROMPT.items())

    def _together(self, prompts: Sequence[Prompt]) -> list[Outputs]:
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
        stops = [prompt.parameters.stop for prompt in prompts]
        if any(stops):
            criteria.append(PerRowStopStrings(self.tokenizer, stops, width))
        if any(prompt.tells for prompt in prompts):
            telling = StreamingCallback(
                self.tokenizer,
                prompts=[prompt.features["input_ids"] for prompt in prompts],
                streams=[prompt.stream if prompt.tells else None for prompt in prompts],
                stops=stops,
                rooms=[prompt.new_tokens for prompt in prompts],
                ends=self._ends,
                width=width,
            )
            criteria.append(telling)
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
