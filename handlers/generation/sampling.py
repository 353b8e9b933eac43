"""Sampling with settings and random numbers of each prompt, so that different ones share a batch.

`generate` has one temperature, one `top_k` and one source of random numbers for all rows. Here the
rows of each prompt are filtered and drawn as `generate` does it for that prompt alone. So a prompt
with the same logits and the same seed has the same text, whatever prompts are beside it.
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

from handlers.compat.transformers import default_settings
from handlers.runtime.ranks import broadcast_from_rank0


@dataclass(frozen=True)
class Filter:
    """A setting that excludes tokens or changes their probabilities.

    Attributes:
        applies: whether a value has an effect; `generate` ignores others.
        make: returns the processor of a value, for logits on a device.
    """

    applies: Callable[[float], bool]
    make: Callable[[float, torch.device], LogitsProcessor]


def _always(_value: float) -> bool:
    return True


def _below_1(value: float) -> bool:
    return value < 1


def _between_0_and_1(value: float) -> bool:
    return 0 < value < 1


# By the names of `GenerationConfig`, in the order of `generate`.
FILTERS: Mapping[str, Filter] = {
    "temperature": Filter(
        lambda value: value != 1, lambda value, _: TemperatureLogitsWarper(value)
    ),
    "top_h": Filter(_always, lambda value, _: TopHLogitsWarper(value)),
    "top_k": Filter(lambda value: value != 0, lambda value, _: TopKLogitsWarper(int(value))),
    "top_p": Filter(_below_1, lambda value, _: TopPLogitsWarper(value)),
    "min_p": Filter(_always, lambda value, _: MinPLogitsWarper(value)),
    "typical_p": Filter(_below_1, lambda value, _: TypicalLogitsWarper(value)),
    "epsilon_cutoff": Filter(_between_0_and_1, lambda value, _: EpsilonLogitsWarper(value)),
    "eta_cutoff": Filter(
        _between_0_and_1, lambda value, device: EtaLogitsWarper(value, device=str(device))
    ),
}
# The arguments of `generate` that may differ between the prompts of a batch.
PER_PROMPT = frozenset({"do_sample", *FILTERS})


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
        known = (default_settings(base), base.to_dict(), given)
        values = {
            name: value for each in known for name, value in each.items() if value is not None
        }
        settings = [
            (name, values[name])
            for name, each in FILTERS.items()
            if name in values and each.applies(values[name])
        ]
        return cls(tuple(settings), seed)

    def filters(self, device: torch.device) -> LogitsProcessorList:
        """Return the filters of the logits, which are on a device."""
        return LogitsProcessorList(
            [FILTERS[name].make(value, device) for name, value in self.settings]
        )


@dataclass
class BatchRows:
    """The states of the rows of a batch that `generate` computes.

    Attributes:
        ended: the rows that need no further token.
        failed: the rows whose logits are not finite.
    """

    ended: set[int] = field(default_factory=set)
    failed: set[int] = field(default_factory=set)


class PerPromptSampler(LogitsProcessor):
    """Draws the next token of the prompts that are sampled, and leaves it as the only one possible.

    Prompts without a seed that have the same settings are drawn together. Nothing is drawn for
    prompts that have ended.

    Args:
        samplings: the sampling of each prompt, which has as many rows as the others; None for the
            most likely token.
        states: the states of the rows.
    """

    def __init__(self, samplings: Sequence[Sampling | None], states: BatchRows) -> None:
        self._prompts, self._states = len(samplings), states
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
            places = slice(rows[0], rows[-1] + 1) if len(group.numbers) == 1 else rows
            if self._states.ended.issuperset(rows):
                # `generate` ignores their tokens, but may draw them, which fails for NaN.
                scores[places] = 0
                continue
            chosen, finite = group.draw(input_ids[places], scores[places])
            scores[places] = torch.full_like(scores[places], -torch.inf).scatter_(1, chosen, 0.0)
            self._states.failed.update(
                row for row, is_finite in zip(rows, finite, strict=True) if not is_finite
            )
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

    def draw(
        self, input_ids: torch.Tensor, scores: torch.Tensor
    ) -> tuple[torch.Tensor, Sequence[bool]]:
        """Return the next token of each row, and whether its probabilities are finite.

        The shape of the tokens is (rows, 1). Any token is drawn for a row without probabilities,
        for which torch would fail, and on GPUs end the process.
        """
        generator, filters = self._source(scores.device)
        probabilities = filters(input_ids, scores).softmax(dim=-1)
        finite = probabilities.sum(dim=-1).isfinite()
        kept = probabilities.masked_fill(~finite[:, None], 1.0)
        return torch.multinomial(kept, 1, generator=generator), finite.tolist()

    def _source(self, device: torch.device) -> tuple[torch.Generator, LogitsProcessorList]:
        """Return the random numbers and the filters on a device, the same ones at each call."""
        if self._prepared is None:
            seed = self.sampling.seed
            if seed is None:
                seed = broadcast_from_rank0(secrets.randbits(63))
            generator = torch.Generator(device).manual_seed(seed)
            self._prepared = generator, self.sampling.filters(device)
        return self._prepared
