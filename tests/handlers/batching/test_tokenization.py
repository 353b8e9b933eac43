from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from handlers.batching.tokenization import check_windows, tokenize
from handlers.errors import RequestTooLarge


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
    for limit, refused in ((len(windows), False), (len(windows) - 1, True)):
        with pytest.raises(RequestTooLarge) if refused else nullcontext():
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
