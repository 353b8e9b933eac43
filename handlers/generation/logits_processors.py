"""How the next token of each row is chosen: penalties, biases, filters, random draws.

`generate` has one temperature, one `top_k` and one source of random numbers for all rows. The
processors of this module have those of each prompt, so that different prompts share a batch, and a
prompt with the same logits and the same seed has the same text in every batch. Source:
`GenerationMixin._get_logits_processor` and `_sample` of transformers.

The order is that of vLLM: transformers' own processors such as the repetition penalty, the
penalties and biases of this module, then temperature, `top_k`, `top_p` and the other filters of
sampling. Log probabilities are those of the model itself, before all of that, as vLLM's
`raw_logprobs`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import (
    EpsilonLogitsWarper,
    EtaLogitsWarper,
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    MinPLogitsWarper,
    PreTrainedTokenizerBase,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)
from transformers.generation import TopHLogitsWarper

from ..compat.transformers import default_settings
from ..errors import RequestTooLarge
from ..process.ranks import broadcast_from_rank0
from .grammar import GrammarMatcher
from .parameters import MAX_TOP_TOKENS, GenerationParameters

# OpenAI's log probability of an impossible token; JSON has no infinity.
# https://platform.openai.com/docs/api-reference/completions
MIN_LOGPROB = -9999.0
# The scores of a prompt at most, each of 4 bytes, and the tokens whose scores are sorted at once.
MAX_PROMPT_SCORES, SCORED_TOGETHER = 2**29, 256


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
    def of(
        cls, generation_config: GenerationConfig, given: Mapping[str, Any], seed: int | None
    ) -> Sampling:
        """Return the sampling of a prompt; its arguments of `generate` take precedence."""
        known = (default_settings(generation_config), generation_config.to_dict(), given)
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
    """The states of the rows of a batch.

    Attributes:
        ended: the rows that need no further token.
        failed: the rows whose logits are not finite.
        matchers: the matcher of each row with a grammar.
    """

    ended: set[int] = field(default_factory=set)
    failed: set[int] = field(default_factory=set)
    matchers: Mapping[int, GrammarMatcher] = field(default_factory=dict)


class PerPromptSampler(LogitsProcessor):
    """Draws the next token of the prompts that are sampled, and leaves it as the only one possible.

    Prompts without a seed that have the same settings are drawn together. Nothing is drawn for
    prompts that have ended.

    Args:
        samplings: the sampling of each prompt; None for the most likely token. Each prompt has the
            same number of rows.
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
    """The numbers of prompts that are drawn together."""

    sampling: Sampling
    numbers: list[int] = field(default_factory=list)
    _prepared: tuple[torch.Generator, LogitsProcessorList] | None = None

    def rows(self, copies: int) -> list[int]:
        """Return the rows of the prompts."""
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


class PerRowPenalties(LogitsProcessor):
    """Subtracts the penalties of tokens that were generated before, adds `logit_bias`, and excludes
    the tokens that a prompt does not allow.

    With beams the scores are log probabilities, which are not normalized again.

    Args:
        settings: the parameters of each prompt.
        width: the length of the padded prompts, whose tokens have no penalty.
        banned: the sequences of tokens that are not generated after each prompt.
    """

    def __init__(
        self,
        settings: Sequence[GenerationParameters],
        width: int,
        banned: Sequence[Sequence[Sequence[int]]],
    ) -> None:
        self._settings, self._width = settings, width
        self._biases = [_tensors(each.logit_bias or {}) for each in settings]
        self._banned = banned

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return the scores of the next token of each row. Shape: (rows, vocabulary)."""
        scores, copies = scores.clone(), len(scores) // len(self._settings)
        for number, settings in enumerate(self._settings):
            rows = slice(number * copies, (number + 1) * copies)
            if settings.frequency_penalty or settings.presence_penalty:
                scores[rows] -= _penalties(input_ids[rows, self._width :], scores[rows], settings)
            ids, values = self._biases[number]
            if len(ids):
                scores[rows, ids] += values.to(scores)
            if settings.allowed_token_ids is not None or settings.bad_words:
                for row in range(rows.start, rows.stop):
                    generated = input_ids[row, self._width :].tolist()
                    self._exclude(scores[row], number, generated)
        return scores

    def _exclude(self, scores: torch.Tensor, number: int, generated: list[int]) -> None:
        """Set the scores of the tokens that a row may not continue with to minus infinity."""
        allowed = self._settings[number].allowed_token_ids
        if allowed is not None:
            kept = scores[list(allowed)]
            scores[:] = -torch.inf
            scores[list(allowed)] = kept
        banned = [
            last
            for *before, last in self._banned[number]
            if not before or generated[-len(before) :] == before
        ]
        if banned:
            scores[banned] = -torch.inf


def _tensors(bias: Mapping[int, float]) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor(list(bias), dtype=torch.int64), torch.tensor(list(bias.values()))


def _penalties(
    generated: torch.Tensor, scores: torch.Tensor, settings: GenerationParameters
) -> torch.Tensor:
    """Return OpenAI's penalties of each token, from how often it was generated in each row."""
    counts = torch.zeros_like(scores)
    counts.scatter_add_(1, generated, torch.ones_like(generated, dtype=scores.dtype))
    frequency, presence = settings.frequency_penalty or 0.0, settings.presence_penalty or 0.0
    return frequency * counts + presence * (counts > 0)


class PerRowFirstToken(LogitsProcessor):
    """Sets the first new token of each prompt; None for any.

    The width is the number of tokens before the new ones.
    """

    def __init__(self, tokens: Sequence[int | None], width: int) -> None:
        self._tokens, self._width = tokens, width

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return the scores of the next token of each row. Shape: (rows, vocabulary)."""
        if input_ids.shape[1] != self._width:
            return scores
        scores, copies = scores.clone(), len(scores) // len(self._tokens)
        for number, token in enumerate(self._tokens):
            if token is not None:
                rows = slice(number * copies, (number + 1) * copies)
                scores[rows] = -torch.inf
                scores[rows, token] = 0
        return scores


@dataclass(frozen=True)
class TokenScores:
    """The log probability of a token, and of the most likely tokens in its place, best first.

    Attributes:
        rank: its place among all tokens, from 1, where it is a token of a prompt.
    """

    logprob: float
    top: Sequence[tuple[int, float]] = ()
    rank: int | None = None


class LogprobRecorder(LogitsProcessor):
    """Keeps the log probabilities of the next token, until it is chosen."""

    def __init__(self, settings: Sequence[GenerationParameters]) -> None:
        self._settings = settings
        self._positions: dict[int, int] = {}
        self._logprobs = torch.empty(0, 0)
        self._top: tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]] | None = None

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return the scores as they are."""
        copies = len(scores) // len(self._settings)
        rows = [row for row in range(len(scores)) if self._settings[row // copies].returns_logprobs]
        logprobs = scores[rows].float().log_softmax(dim=-1)
        self._logprobs = logprobs.nan_to_num(nan=MIN_LOGPROB).clamp_(min=MIN_LOGPROB)
        self._positions = {row: place for place, row in enumerate(rows)}
        self._top = None
        if any(settings.top_n_tokens for settings in self._settings):
            # As many for each row, since equal values have no order that a smaller number keeps.
            values, ids = self._logprobs.topk(min(MAX_TOP_TOKENS, scores.shape[1]))
            self._top = ids.cpu().numpy(), values.cpu().numpy()
        return scores

    def scores(self, chosen: torch.Tensor) -> dict[int, TokenScores]:
        """Return the scores of the token that was chosen for each row which asks for them.

        Args:
            chosen: the new token of every row. Shape: (rows,)
        """
        rows = list(self._positions)
        logprobs = self._logprobs.gather(1, chosen[rows, None].to(self._logprobs.device))
        copies = len(chosen) // len(self._settings)
        return {
            row: TokenScores(logprob, self._top_of(row, self._settings[row // copies].top_n_tokens))
            for row, logprob in zip(rows, logprobs[:, 0].tolist(), strict=True)
        }

    def _top_of(self, row: int, count: int) -> list[tuple[int, float]]:
        if self._top is None:
            return []
        ids, values = (array[self._positions[row], :count].tolist() for array in self._top)
        return list(zip(ids, values, strict=True))


def check_prompt_scores(tokens: int, vocabulary: int) -> None:
    """Check that the scores of all tokens of a prompt have room in memory.

    Raises:
        RequestTooLarge: they have not.
    """
    most = MAX_PROMPT_SCORES // vocabulary
    if tokens > most:
        raise RequestTooLarge(
            f"the prompt has {tokens:,} tokens, and this model returns the log probabilities of at"
            f" most {most:,}; send a shorter prompt, or leave them out."
        )


def prompt_scores(logits: torch.Tensor, ids: torch.Tensor, top: int) -> list[TokenScores]:
    """Return the scores of the tokens of a prompt; the first one has the score 0.

    Args:
        logits: the scores of the token after each one. Shape: (tokens, vocabulary).
        ids: the tokens. Shape: (tokens,).
        top: how many likely tokens are returned in the place of each.
    """
    found = [TokenScores(0.0)]
    for start in range(0, len(ids) - 1, SCORED_TOGETHER):
        end = min(start + SCORED_TOGETHER, len(ids) - 1)
        logprobs = logits[start:end].float().log_softmax(dim=-1)
        logprobs = logprobs.nan_to_num(nan=MIN_LOGPROB).clamp_(min=MIN_LOGPROB)
        chosen = ids[start + 1 : end + 1, None].to(logprobs.device)
        scores = logprobs.gather(1, chosen)
        ranks = (1 + (logprobs > scores).sum(dim=1)).tolist()
        # As many for any number, as in the recorder.
        values, likely = logprobs.topk(min(MAX_TOP_TOKENS, logprobs.shape[1]))
        best = zip(likely[:, :top].tolist(), values[:, :top].tolist(), strict=True)
        found += [
            TokenScores(logprob, list(zip(tokens, each, strict=True)), rank)
            for logprob, rank, (tokens, each) in zip(
                scores[:, 0].tolist(), ranks, best, strict=True
            )
        ]
    return found


def banned_sequences(
    tokenizer: PreTrainedTokenizerBase, words: Sequence[str]
) -> list[tuple[int, ...]]:
    """Return the tokens of texts that are not written, at the beginning and after a space."""
    forms = [form for word in words for form in (word, f" {word.lstrip()}")]
    if not forms:
        return []
    ids = tokenizer(forms, add_special_tokens=False)["input_ids"]
    return list(dict.fromkeys(tuple(each) for each in ids if each))
