"""Sampling with settings and random numbers of each prompt, so that different ones share a batch.

`generate` has one temperature, one `top_k` and one source of random numbers for all rows. Here the
rows of each prompt are filtered and drawn as `generate` does it for that prompt alone, so that a
seed gives the same text in any company.
Source: `GenerationMixin._get_logits_processor` and `_sample` of transformers.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import (
    EpsilonLogitsWarper,
    EtaLogitsWarper,
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)
from transformers.generation import TopHLogitsWarper

from handlers.runtime.ranks import broadcast_from_rank0

Filter = Callable[[float, torch.device], LogitsProcessor]
# By the names of `GenerationConfig`, in the order of `generate`: the value of a setting that
# changes nothing, and the filter of others.
FILTERS: Mapping[str, tuple[float | None, Filter]] = {
    "temperature": (1.0, lambda value, _device: TemperatureLogitsWarper(value)),
    "top_h": (None, lambda value, _device: TopHLogitsWarper(value)),
    "top_k": (0, lambda value, _device: TopKLogitsWarper(int(value))),
    "top_p": (1.0, lambda value, _device: TopPLogitsWarper(value)),
    "min_p": (None, lambda value, _device: MinPLogitsWarper(value)),
    "typical_p": (1.0, lambda value, _device: TypicalLogitsWarper(value)),
    "epsilon_cutoff": (0.0, lambda value, _device: EpsilonLogitsWarper(value)),
    "eta_cutoff": (0.0, lambda value, device: EtaLogitsWarper(value, device=str(device))),
}
# The arguments of `generate` that prompts of one batch need not share.
OF_SAMPLING = frozenset({"do_sample", *FILTERS})


@dataclass(frozen=True)
class Sampling:
    """How the tokens of a prompt are drawn.

    Attributes:
        settings: the names and values of the filters, in their order.
        seed: the seed of its random numbers; None for any.
    """

    settings: tuple[tuple[str, float], ...]
    seed: int | None = None

    @classmethod
    def of(cls, base: GenerationConfig, given: Mapping[str, Any], seed: int | None) -> Sampling:
        """Return the sampling of a prompt.

        Args:
            base: the checkpoint's generation config.
            given: the arguments of `generate` for the prompt, which take precedence.
            seed: the seed of the prompt.
        """
        values = {**base._get_default_generation_params(), **_set(base.to_dict()), **_set(given)}
        named = [(name, values.get(name)) for name in FILTERS]
        settings = [
            (name, value)
            for name, value in named
            if value is not None and value != FILTERS[name][0]
        ]
        return cls(tuple(settings), seed)

    def filters(self, device: torch.device) -> LogitsProcessorList:
        """Return the filters of the logits, which are on a device."""
        return LogitsProcessorList(
            [FILTERS[name][1](value, device) for name, value in self.settings]
        )


class PerPromptSampler(LogitsProcessor):
    """Draws the next token of the prompts that are sampled, and leaves it as the only one possible.

    Prompts without a seed that have the same settings are drawn together.

    Args:
        samplings: the sampling of each prompt, which has as many rows as the others; None for the
            most likely token.
    """

    def __init__(self, samplings: Sequence[Sampling | None]) -> None:
        self._prompts = len(samplings)
        groups: dict[Hashable, _Group] = {}
        for number, sampling in enumerate(samplings):
            if sampling:
                key = sampling if sampling.seed is None else number
                groups.setdefault(key, _Group(sampling)).numbers.append(number)
        self._groups = list(groups.values())

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return the scores of the next token of each row. Shape: (rows, vocabulary)."""
        scores, copies = scores.clone(), len(scores) // self._prompts
        for group in self._groups:
            rows = group.rows(copies)
            chosen = group.draw(input_ids[rows], scores[rows])
            scores[rows] = -torch.inf
            scores[rows, chosen] = 0
        return scores


@dataclass
class _Group:
    """Prompts that are drawn together.

    Attributes:
        sampling: their sampling.
        numbers: their numbers.
    """

    sampling: Sampling
    numbers: list[int] = field(default_factory=list)
    _prepared: tuple[torch.Generator, LogitsProcessorList] | None = None

    def rows(self, copies: int) -> list[int]:
        """Return the rows of the prompts, each of which has a number of them."""
        return [number * copies + copy for number in self.numbers for copy in range(copies)]

    def draw(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return the next token of each row. Shape: (rows,)."""
        generator, filters = self._source(scores.device)
        probabilities = filters(input_ids, scores).softmax(dim=-1)
        return torch.multinomial(probabilities, 1, generator=generator)[:, 0]

    def _source(self, device: torch.device) -> tuple[torch.Generator, LogitsProcessorList]:
        """Return the random numbers and the filters on a device, the same ones at each call."""
        if self._prepared is None:
            seed = self.sampling.seed
            if seed is None:
                seed = broadcast_from_rank0(secrets.randbits(63))
            generator = torch.Generator(device).manual_seed(seed)
            self._prepared = generator, self.sampling.filters(device)
        return self._prepared


def _set(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
