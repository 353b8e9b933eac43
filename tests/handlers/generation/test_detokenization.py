from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from hf_serve.handlers.generation.detokenization import (
    AS_GENERATED,
    CONTEXT,
    INCOMPLETE,
    MAX_INCOMPLETE,
    IncrementalDecoder,
)
from tests.tiny_tokenizers import write_bert, write_gpt2, write_llama

KINDS: dict[str, Callable[[Path], Any]] = {
    "WordPiece": write_bert,
    "byte-level BPE": write_gpt2,
    "SentencePiece": write_llama,
}
ODD = "The café in Zürich 北京 是 🦊🦊🦊 a fox . It is n't 中国"


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request: Any, tmp_path_factory: Any) -> Any:
    folder = tmp_path_factory.mktemp("tokenizer")
    KINDS[request.param](folder)
    return PreTrainedTokenizerFast.from_pretrained(folder)


def encode(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
    return ids


def add_all(tokenizer: Any, prompt: list[int], new: list[int]) -> list[str]:
    """Return the text that each token adds, and what is left at the end."""
    decoder, parts = IncrementalDecoder(tokenizer), []
    tail = decoder.start(prompt)
    for token in new:
        tail, part = decoder.add(tail, token)
        parts.append(part)
    return [*parts, decoder.rest(tail)]


def new_text(tokenizer: Any, prompt: list[int], new: list[int]) -> str:
    """Return the text of new tokens as the tokenizer decodes it with the prompt."""
    before = tokenizer.decode(prompt, **AS_GENERATED)
    return str(tokenizer.decode([*prompt, *new], **AS_GENERATED))[len(before) :]


@pytest.mark.parametrize("prompt", ["Ada", "Nina Vogel sings in the old bar. " * 9, "京" * 30])
def test_the_parts_of_a_text_add_up_to_it(tokenizer: Any, prompt: str) -> None:
    before, new = encode(tokenizer, prompt), encode(tokenizer, f"{ODD} {ODD}")
    whole = new_text(tokenizer, before, new)
    assert "".join(add_all(tokenizer, before, new)) == whole
    decoder = IncrementalDecoder(tokenizer)
    assert decoder.decode(decoder.start(before), new) == whole


def test_no_part_has_half_a_character(tokenizer: Any) -> None:
    parts = add_all(tokenizer, encode(tokenizer, "Ada"), encode(tokenizer, ODD))
    assert not any(INCOMPLETE in part for part in parts)


def test_any_tokens_have_the_same_text_one_by_one_and_all_at_once(tokenizer: Any) -> None:
    random = np.random.default_rng(0)
    for _ in range(50):
        prompt, new = (random.integers(len(tokenizer), size=size).tolist() for size in (3, 60))
        parts = add_all(tokenizer, prompt, new)
        decoder = IncrementalDecoder(tokenizer)
        assert decoder.decode(decoder.start(prompt), new) == "".join(parts)


def test_any_tokens_of_bytes_have_the_text_of_the_tokenizer(tmp_path: Path) -> None:
    write_gpt2(tmp_path)
    tokenizer: Any = AutoTokenizer.from_pretrained(tmp_path)
    random = np.random.default_rng(0)
    for _ in range(200):
        prompt, new = (random.integers(len(tokenizer), size=size).tolist() for size in (3, 60))
        parts = add_all(tokenizer, prompt, new)
        assert "".join(parts) == new_text(tokenizer, prompt, new)


def test_a_special_token_keeps_the_space_of_the_next_word(tokenizer: Any) -> None:
    special = tokenizer.all_special_ids[0]
    prompt, word = encode(tokenizer, "Ada"), encode(tokenizer, "lives")
    new = [special, special, *word] * 20
    assert "".join(add_all(tokenizer, prompt, new)) == new_text(tokenizer, prompt, new)


class CountingTokenizer:
    """A tokenizer that notes how many tokens it decodes at once."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.lengths: list[int] = []

    def decode(self, tokens: list[int], **options: Any) -> str:
        self.lengths.append(len(tokens))
        return str(self._tokenizer.decode(tokens, **options))


def test_a_step_decodes_few_tokens_however_long_the_text_is(tokenizer: Any) -> None:
    counting = CountingTokenizer(tokenizer)
    new = np.random.default_rng(0).integers(len(tokenizer), size=2000).tolist()
    add_all(counting, encode(tokenizer, ODD * 20), new)
    assert max(counting.lengths) <= CONTEXT + MAX_INCOMPLETE
    assert len(counting.lengths) < 1.2 * len(new)
