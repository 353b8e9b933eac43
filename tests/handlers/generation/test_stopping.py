from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

from handlers.generation.stopping import PerRowStopStrings, before_stop


@pytest.mark.parametrize(
    ("stops", "text"),
    [
        ((), "a fox sang"),
        (("sang", "fox"), "a "),
        (("fox", "sang"), "a "),
        (("wolf",), "a fox sang"),
        (("a",), ""),
    ],
)
def test_a_text_ends_before_the_first_stop(stops: tuple[str, ...], text: str) -> None:
    assert before_stop("a fox sang", stops) == text


def test_each_row_has_its_own_stops_and_the_prompt_has_none(
    checkpoint: Callable[..., Path],
) -> None:
    tokenizer: Any = AutoTokenizer.from_pretrained(checkpoint("text_generation"))
    prompt, sang, fox = tokenizer(["fox", " sang", " fox"])["input_ids"]
    length = max(len(sang), len(fox))
    written = [ids + [0] * (length - len(ids)) for ids in (sang, fox, sang, fox)]
    rows = torch.tensor([prompt + ids for ids in written])
    done = PerRowStopStrings(tokenizer, [prompt] * 2, [("fox",), ("sang",)], len(prompt))(
        rows, None
    )
    assert done.tolist() == [False, True, True, False]
