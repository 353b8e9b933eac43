"""Seeded requests of mixed length, the same for each contender."""

from __future__ import annotations

import random
from dataclasses import dataclass

from benchmarks.text_generation.models import FIRST_WORD

PROMPT_TOKENS = (5, 200)
NEW_TOKENS = (8, 128)
# Tokens of a prompt and its new text, for servers that have such a limit.
LONGEST_TEXT = 512
TEMPERATURES = (0.5, 1.5)
# The prompts of each list are different, because an engine may keep the cache of earlier prompts.
SEEDS = {"warm-up": 0, "equal": 1, "own": 2, "long": 3, "short": 4}
SETTINGS = {"equal": "greedy", "own": "a temperature and seed of its own for each request"}
SHORT_PROMPT_TOKENS, SHORT_NEW_TOKENS = 20, 5


@dataclass(frozen=True)
class GenerationRequest:
    """A prompt and how to continue it.

    Attributes:
        prompt: token ids.
        new_tokens: the number of tokens to generate; no token ends the text.
        temperature: the temperature of sampling from the whole vocabulary; None for greedy.
        seed: the seed of sampling.
    """

    prompt: list[int]
    new_tokens: int
    temperature: float | None = None
    seed: int | None = None


def workload(setting: str, count: int, vocabulary: int) -> list[GenerationRequest]:
    """Return the requests of a setting, `equal` or `own`.

    Args:
        setting: a key of `SETTINGS`.
        count: the number of requests.
        vocabulary: the size of the vocabulary.
    """
    generator = random.Random(SEEDS[setting])
    requests = [_mixed(generator, vocabulary) for _ in range(count)]
    if setting == "equal":
        return requests
    return [
        GenerationRequest(each.prompt, each.new_tokens, generator.uniform(*TEMPERATURES), seed)
        for seed, each in enumerate(requests)
    ]


def warm_up(count: int, vocabulary: int) -> list[GenerationRequest]:
    """Return requests that are sent before the others."""
    generator = random.Random(SEEDS["warm-up"])
    return [_mixed(generator, vocabulary) for _ in range(count)]


def long_requests(count: int, vocabulary: int) -> list[GenerationRequest]:
    """Return requests of mixed prompts and the most new tokens."""
    generator = random.Random(SEEDS["long"])
    drawn = (_mixed(generator, vocabulary) for _ in range(count))
    return [GenerationRequest(each.prompt, NEW_TOKENS[1]) for each in drawn]


def short_requests(count: int, vocabulary: int) -> list[GenerationRequest]:
    """Return requests of 20 tokens for 5 new ones."""
    generator = random.Random(SEEDS["short"])
    prompts = (_prompt(generator, SHORT_PROMPT_TOKENS, vocabulary) for _ in range(count))
    return [GenerationRequest(prompt, SHORT_NEW_TOKENS) for prompt in prompts]


def _mixed(generator: random.Random, vocabulary: int) -> GenerationRequest:
    length = generator.randint(*PROMPT_TOKENS)
    return GenerationRequest(_prompt(generator, length, vocabulary), generator.randint(*NEW_TOKENS))


def _prompt(generator: random.Random, length: int, vocabulary: int) -> list[int]:
    return [generator.randrange(FIRST_WORD, vocabulary) for _ in range(length)]
