"""Prompts that begin alike: which one waits until a back end has cached their common beginning.

The process of openvino-genai runs this file, so that it imports nothing of the package.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

# A common beginning of fewer tokens is read again.
MIN_TOKENS = 64


def waits_for_prefix(prompt: Sequence[int], read: Iterable[Sequence[int]]) -> bool:
    """Return whether a prompt shares at least half of another one that is being read.

    It is read in less time once the other one is cached. Behind a longer prompt with a short common
    beginning it would wait for more than it saves.

    Args:
        prompt: the tokens of a waiting prompt.
        read: the tokens of the prompts that have no first token yet.
    """
    return any(_shares_half(prompt, other) for other in read)


def _shares_half(prompt: Sequence[int], other: Sequence[int]) -> bool:
    common = max(MIN_TOKENS, len(other) // 2)
    return prompt[:common] == other[:common] and len(prompt) >= common
