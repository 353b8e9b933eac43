from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from hf_serve.handlers.batching.tokenization import (
    check_length,
    check_windows,
    tokenize,
    without_excess,
)
from hf_serve.handlers.errors import RequestTooLarge
from tests.sentences import refused


@pytest.fixture(scope="module")
def tokenizer(checkpoint: Callable[..., Path]) -> Any:
    return AutoTokenizer.from_pretrained(checkpoint("token_classification"))


@given(st.data())
def test_windows_are_counted_as_the_tokenizer_makes_them(
    tokenizer: Any, data: st.DataObject
) -> None:
    tokens, size = data.draw(st.integers(1, 90)), data.draw(st.integers(1, 12))
    stride = data.draw(st.integers(0, size - 1))
    options = {"truncation": True, "max_length": size + 2, "stride": stride}
    windows = tokenizer("a " * tokens, return_overflowing_tokens=True, **options)["input_ids"]
    for limit, is_refused in ((len(windows), False), (len(windows) - 1, True)):
        with pytest.raises(RequestTooLarge) if is_refused else nullcontext():
            check_windows(tokens, size=size, stride=stride, limit=limit)


def test_threads_that_truncate_differently_do_not_meet(tokenizer: Any) -> None:
    """The tokenizer itself keeps the truncation of its last call."""
    texts = [("a " * 100, None)] * 20

    def lengths(limit: int) -> set[int]:
        encoded = tokenize(tokenizer, texts, truncation=True, max_length=limit)
        return {len(ids) for ids in encoded["input_ids"]}

    limits = [5, 9, 60] * 100
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(lengths, limits)) == [{limit} for limit in limits]


@pytest.mark.parametrize("family", ["Bert", pytest.param("Roberta", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("truncated", ["both", 0, 1])
def test_a_pair_without_excess_is_truncated_to_the_same_tokens(
    checkpoint: Callable[..., Path], family: str, truncated: Any
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(checkpoint("sentence_ranking", family=family))
    generator = random.Random(7)
    words = ["the", "fox", "sings", "Zürich", "北京", "unbelievable", "don't", "a" * 30, "🎉x"]
    strategy = {"both": True, 0: "only_first", 1: "only_second"}[truncated]
    cut = 0
    for _ in range(180):
        first, second = (generator.choices(words, k=generator.randint(1, 90)) for _ in range(2))
        pair = " ".join(first), " ".join(second)
        whole = tokenize(tokenizer, [pair]).encodings[0]
        sizes = [whole.sequence_ids.count(number) for number in (0, 1)]
        limit = generator.randint(6, 60)
        room = limit - (len(whole.ids) - sizes[truncated] if truncated != "both" else 0)
        if len(whole.ids) <= limit or room < 1:
            continue
        rooms = [room if truncated in ("both", number) else None for number in (0, 1)]
        short = without_excess(tokenizer, pair, whole, rooms)
        options: dict[str, Any] = {"truncation": strategy, "max_length": limit}
        expected, found = (tokenize(tokenizer, [each], **options)[0] for each in (pair, short))
        assert (found.ids, found.offsets) == (expected.ids, expected.offsets)
        cut += short != pair
    assert cut > 1


@pytest.mark.parametrize("family", ["Bert", "Roberta"])
def test_a_long_pair_without_excess_has_few_windows(
    checkpoint: Callable[..., Path], family: str
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(checkpoint("sentence_ranking", family=family))
    pair = ("a " * 5_000, "a " * 5_000)
    whole = tokenize(tokenizer, [pair]).encodings[0]
    for limit in (6, 60):
        short = without_excess(tokenizer, pair, whole, (limit, limit))
        encoding = tokenize(tokenizer, [short], truncation=True, max_length=limit)[0]
        assert len(encoding.ids) == limit
        assert len(encoding.overflowing) < 3_000
    with refused(RequestTooLarge, 6):
        without_excess(tokenizer, pair, whole, (6, 6), "left")


def test_a_pair_may_be_truncated_at_its_beginning(checkpoint: Callable[..., Path]) -> None:
    tokenizer = AutoTokenizer.from_pretrained(checkpoint("sentence_ranking"))
    pair = ("a " * 120, "b " * 2_000)
    whole = tokenize(tokenizer, [pair]).encodings[0]
    for rooms in ((None, 5), (128, 128)):
        assert without_excess(tokenizer, pair, whole, rooms, "left") == pair


def test_a_row_may_be_as_long_as_the_limit() -> None:
    check_length(5, 5, "the text")
    with pytest.raises(RequestTooLarge):
        check_length(6, 5, "the text")
