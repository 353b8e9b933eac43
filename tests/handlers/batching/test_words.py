from __future__ import annotations

from itertools import pairwise

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from hf_serve.handlers.batching.words import (
    PROMPTS,
    WORDS,
    PromptedText,
    WindowLimits,
    WordWindow,
    pattern_with_addresses,
    split_words,
    tokenize_words,
)
from hf_serve.handlers.errors import TextTooLong
from tests.sentences import refused
from tests.tiny_tokenizers import write_bert

TEXT = "Nina Vogel sings unbelievable songs in Zürich, e-mail nina_v@example.org!"
PROMPT = ["sings", "the singer", "sings", "unbelievable", "moon"]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerBase:
    folder = tmp_path_factory.mktemp("tokenizer")
    write_bert(folder)
    found: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder)
    return found


def windows(
    tokenizer: PreTrainedTokenizerBase,
    limits: WindowLimits,
    pooling: str = "first",
    text: str = TEXT,
) -> list[WordWindow]:
    words = split_words(text)
    read = [*PROMPT, *(text[word.start : word.end] for word in words)]
    return PromptedText.of(
        tokenize_words(tokenizer, [read]),
        0,
        ["input_ids"],
        words,
        prompts=[0, 2],
        prompt=len(PROMPT),
        pooling=pooling,
    ).windows(limits)


def ids_alone(tokenizer: PreTrainedTokenizerBase, window: WordWindow) -> list[int]:
    words = split_words(TEXT)[window.first : window.last + 1]
    read = [*PROMPT, *(TEXT[word.start : word.end] for word in words)]
    ids: list[int] = tokenize_words(tokenizer, [read])["input_ids"][0]
    return ids


def test_words_are_letters_with_hyphens_or_other_characters() -> None:
    found = [TEXT[word.start : word.end] for word in split_words(TEXT)]
    assert found == [
        *("Nina", "Vogel", "sings", "unbelievable", "songs", "in", "Zürich", ",", "e-mail"),
        *("nina_v", "@", "example", ".", "org", "!"),
    ]


def test_words_of_gliner2_are_addresses_names_and_words_with_marks() -> None:
    text = "See www.ada.org, or mail a.b+c@ada.co.uk, @nina! नमस्ते e-mail x@y"
    found = [text[word.start : word.end] for word in split_words(text, pattern_with_addresses())]
    assert found == [
        *("See", "www.ada.org,", "or", "mail", "a.b+c@ada.co.uk", ",", "@nina", "!"),
        *("नमस्ते", "e-mail", "x", "@y"),
    ]


def test_a_short_text_is_one_window_with_its_prompts_and_words(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    (window,) = windows(tokenizer, WindowLimits(None, 100, 2, 9))
    assert window.features["input_ids"] == ids_alone(tokenizer, window)
    assert [number for number in window.features[PROMPTS] if number] == [1, 2]
    assert [number for number in window.features[WORDS] if number] == list(range(1, 16))
    tokens = zip(window.encoding.word_ids, window.encoding.offsets, strict=True)
    places = {(word, TEXT[start:end]) for word, (start, end) in tokens if word == 3}
    assert places == {(3, "unbe"), (3, "liev"), (3, "able")}


def test_a_word_is_read_at_its_first_or_last_token_or_at_all(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    limits = WindowLimits(None, 100, 2, 9)
    read = {
        pooling: [
            place
            for place, number in enumerate(windows(tokenizer, limits, pooling)[0].features[WORDS])
            if number == 4
        ]
        for pooling in ("first", "last", "mean")
    }
    assert len(read["mean"]) == 3
    assert (read["first"], read["last"]) == (read["mean"][:1], read["mean"][-1:])


@pytest.mark.parametrize("limits", [WindowLimits(None, 4, 1, 9), WindowLimits(20, 99, 1, 99)])
def test_a_long_text_is_read_in_windows_that_overlap(
    tokenizer: PreTrainedTokenizerBase, limits: WindowLimits
) -> None:
    found = windows(tokenizer, limits)
    assert len(found) > 2
    for before, after in pairwise(found):
        assert after.first in (before.last, before.first + 1)
    assert [window.is_last for window in found] == [*[False] * (len(found) - 1), True]
    assert (found[0].first, found[-1].last) == (0, 14)
    assert max(window.count for window in found) <= limits.words
    for window in found:
        assert window.features["input_ids"] == ids_alone(tokenizer, window)


def test_a_word_longer_than_a_window_is_cut(tokenizer: PreTrainedTokenizerBase) -> None:
    found = windows(tokenizer, WindowLimits(16, 99, 0, 9), text="sing" * 20 + " sings")
    assert [(window.first, window.count) for window in found] == [(0, 1), (1, 1)]
    assert len(found[0]) <= 16


def test_prompts_without_room_for_the_text_are_refused(tokenizer: PreTrainedTokenizerBase) -> None:
    with refused(TextTooLong, "the labels have", 8):
        windows(tokenizer, WindowLimits(8, 99, 0, 9))


def test_more_windows_than_a_request_may_have_are_refused(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    with refused(TextTooLong, 15, 3):
        windows(tokenizer, WindowLimits(None, 2, 1, 3))
