"""Logits of generated tokens: penalties and biases of each prompt, and log probabilities.

The order is that of vLLM: transformers' own processors such as the repetition penalty, the
penalties and biases of this module, then temperature, `top_k`, `top_p` and the other filters of
sampling. `generate` runs the processors that it is given as `logits_processor` in this place.

Log probabilities are those of the model itself, before all of that, as vLLM's `raw_logprobs`.

https://platform.openai.com/docs/api-reference/completions
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from transformers import LogitsProcessor, PreTrainedTokenizerBase

from handlers.compat.transformers import run_before_other_processors
from handlers.generation.parameters import MAX_TOP_TOKENS, GenerationParameters

# OpenAI's value for a token that is out of the question; JSON has no infinity.
MIN_LOGPROB = -9999.0


class PerRowPenalties(LogitsProcessor):
    """Subtracts the penalties of tokens that were generated before, adds `logit_bias`, and excludes
    the tokens that a prompt does not allow.

    A row has the settings of its prompt, so prompts with different ones share a batch. With beams
    the scores are log probabilities, which are not normalized again.

    Args:
        settings: the parameters of each prompt, which has as many rows as the others.
        width: the length of the padded prompts, whose tokens do not count.
        banned: the sequences of tokens that are not generated after each prompt.
    """

    def __init__(
        self,
        settings: Sequence[GenerationParameters],
        width: int,
        banned: Sequence[Sequence[Sequence[int]]] = (),
    ) -> None:
        self._settings, self._width = settings, width
        self._biases = [_tensors(each.logit_bias or {}) for each in settings]
        self._banned = banned or [()] * len(settings)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return the scores of the next token of each row. Shape: (rows, vocabulary)."""
        scores, copies = scores.clone(), len(scores) // len(self._settings)
        for number, settings in enumerate(self._settings):
            rows = slice(number * copies, (number + 1) * copies)
            if settings.penalizes:
                scores[rows] -= _penalties(input_ids[rows, self._width :], scores[rows], settings)
            ids, values = self._biases[number]
            if len(ids):
                scores[rows, ids] += values.to(scores)
            if settings.excludes_tokens:
                for row in range(rows.start, rows.stop):
                    generated = input_ids[row, self._width :].tolist()
                    self._exclude(scores[row], number, generated)
        return scores

    def _exclude(self, scores: torch.Tensor, number: int, generated: list[int]) -> None:
        """Set the scores of the tokens that may not follow those of a row to minus infinity."""
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
    """Has the text of each prompt begin with a token of its own.

    Args:
        tokens: the token of each prompt, which has as many rows as the others; None for any.
        width: the number of tokens before a text.
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
    """The log probability of a generated token, and of the most likely ones in its place.

    Attributes:
        logprob: the natural logarithm of the probability.
        top: ids and log probabilities, the most likely first.
    """

    logprob: float
    top: Sequence[tuple[int, float]] = ()


class LogprobRecorder(LogitsProcessor):
    """Keeps the log probabilities of the next token, until it is chosen.

    Args:
        settings: the parameters of each prompt, which has as many rows as the others.
    """

    def __init__(self, settings: Sequence[GenerationParameters]) -> None:
        self._settings = settings
        self._place: dict[int, int] = {}
        self._logprobs = torch.empty(0, 0)
        self._top: tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]] | None = None

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return the scores as they are."""
        copies = len(scores) // len(self._settings)
        rows = [row for row in range(len(scores)) if self._settings[row // copies].records_tokens]
        logprobs = scores[rows].float().log_softmax(dim=-1)
        self._logprobs = logprobs.nan_to_num(nan=MIN_LOGPROB).clamp_(min=MIN_LOGPROB)
        self._place = {row: place for place, row in enumerate(rows)}
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
        rows = list(self._place)
        logprobs = self._logprobs.gather(1, chosen[rows, None].to(self._logprobs.device))
        copies = len(chosen) // len(self._settings)
        return {
            row: TokenScores(logprob, self._top_of(row, self._settings[row // copies].top_n_tokens))
            for row, logprob in zip(rows, logprobs[:, 0].tolist(), strict=True)
        }

    def _top_of(self, row: int, count: int) -> list[tuple[int, float]]:
        if self._top is None:
            return []
        ids, values = (array[self._place[row], :count].tolist() for array in self._top)
        return list(zip(ids, values, strict=True))


def banned_sequences(
    tokenizer: PreTrainedTokenizerBase, words: Sequence[str]
) -> list[tuple[int, ...]]:
    """Return the tokens of texts that are not written, at the beginning and after a space."""
    forms = [form for word in words for form in (word, f" {word.lstrip()}")]
    if not forms:
        return []
    ids = tokenizer(forms, add_special_tokens=False)["input_ids"]
    return list(dict.fromkeys(tuple(each) for each in ids if each))


def penalties_for(
    settings: Sequence[GenerationParameters],
    width: int,
    banned: Sequence[Sequence[Sequence[int]]] = (),
) -> list[LogitsProcessor]:
    """Return the processor of the penalties and biases of prompts; none if there are none.

    Args:
        settings: the parameters of each prompt.
        width: the length of the padded prompts.
        banned: the sequences of tokens that are not generated after each prompt.
    """
    if not any(each.penalizes or each.logit_bias or each.excludes_tokens for each in settings):
        return []
    return [PerRowPenalties(settings, width, banned)]


def first_tokens_for(tokens: Sequence[int | None], width: int) -> list[LogitsProcessor]:
    """Return the processor of the tokens that texts begin with; none if they are free.

    Args:
        tokens: the token of each prompt; None for any.
        width: the number of tokens before a text.
    """
    return [PerRowFirstToken(tokens, width)] if any(each is not None for each in tokens) else []


def recorder_for(settings: Sequence[GenerationParameters]) -> LogprobRecorder | None:
    """Return the recorder for prompts, None where none of them asks for log probabilities."""
    records = any(each.records_tokens for each in settings)
    return LogprobRecorder(settings) if records else None


def recording(recorder: LogitsProcessor | None) -> dict[str, Any]:
    """Return the arguments of `generate` for a recorder of the model's logits; none without it."""
    return run_before_other_processors(recorder) if recorder else {}
