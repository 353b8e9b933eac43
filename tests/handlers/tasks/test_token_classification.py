from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from tests.samples import FINE, LONG, ODD
from tests.sentences import Sentence
from tests.serving import Served

MODE = "token_classification"
SPECIAL = {"[CLS]", "[SEP]", "[PAD]", "<s>", "</s>", "<pad>"}
families = pytest.mark.parametrize("family", ["Bert", "Roberta"])


@families
@pytest.mark.parametrize("text", [FINE, ODD, LONG])
def test_every_token_has_a_position_and_none_is_special(
    served: Callable[..., Served], family: str, text: str
) -> None:
    tokens = served(MODE, family=family).ask(text, ignore_labels=[])
    assert [token["index"] for token in tokens] == list(range(1, len(tokens) + 1))
    assert not SPECIAL & {token["word"] for token in tokens}
    assert all(0 <= token["start"] <= token["end"] <= len(text) for token in tokens)
    assert all(before["start"] <= token["start"] for before, token in pairwise(tokens))


@pytest.mark.parametrize(
    ("family", "first", "last", "unknown"),
    [("Bert", "[CLS]", "[SEP]", "[UNK]"), ("Roberta", "<s>", "</s>", None)],
)
def test_special_tokens_are_returned_if_requested(
    served: Callable[..., Served], family: str, first: str, last: str, unknown: str | None
) -> None:
    model = served(MODE, family=family)
    usual = model.ask(ODD, ignore_labels=[])
    begin, *inner, end = model.ask(ODD, ignore_labels=[], special_tokens=True)
    assert (begin["word"], end["word"]) == (first, last)
    assert (begin["index"], end["index"]) == (0, len(usual) + 1)
    assert [{**token, "word": ""} for token in inner] == [{**token, "word": ""} for token in usual]
    assert (unknown in {token["word"] for token in inner}) == (unknown is not None)
    assert unknown not in {token["word"] for token in usual}


def test_special_tokens_are_in_no_entity(served: Callable[..., Served]) -> None:
    given = {"special_tokens": True, "aggregation_strategy": "simple"}
    assert served(MODE).refuse(FINE, **given) == (
        400,
        Sentence("special_tokens", "aggregation_strategy"),
    )


@families
@pytest.mark.parametrize("strategy", ["simple", "first", "average", "max"])
def test_entities_do_not_overlap_and_cover_whole_words(
    served: Callable[..., Served], family: str, strategy: str
) -> None:
    given = {"aggregation_strategy": strategy, "ignore_labels": []}
    entities = served(MODE, family=family).ask(FINE, **given)
    assert all(before["end"] <= entity["start"] for before, entity in pairwise(entities))
    assert "".join(FINE[each["start"] : each["end"]] for each in entities) == FINE.replace(
        " ", ""
    ) or any(" " in FINE[each["start"] : each["end"]] for each in entities)
    if strategy != "simple":
        letters = [FINE[each["start"] - 1 : each["start"] + 1] for each in entities[1:]]
        assert not any(pair.isalpha() and len(pair) == 2 for pair in letters)


def test_a_long_text_is_read_to_its_end_with_a_stride(served: Callable[..., Served]) -> None:
    model = served(MODE)
    given = {"aggregation_strategy": "first", "ignore_labels": []}
    assert model.ask(LONG, **given)[-1]["end"] < len(LONG.strip())
    assert model.ask(LONG, stride=0, **given)[-1]["end"] == len(LONG.strip())


def test_entities_of_two_windows_do_not_overlap(served: Callable[..., Served]) -> None:
    given = {"aggregation_strategy": "first", "ignore_labels": [], "stride": 60}
    entities = served(MODE).ask(LONG, **given)
    assert all(before["end"] <= entity["start"] for before, entity in pairwise(entities))


def test_a_word_that_begins_with_a_token_of_one_letter_is_whole(
    served: Callable[..., Served],
) -> None:
    model = served(MODE, family="Roberta")
    pieces = model.ask("zqxj", ignore_labels=[])
    assert (pieces[0]["start"], pieces[0]["end"]) == (0, 1) and len(pieces) > 1
    (word,) = model.ask("zqxj", aggregation_strategy="first", ignore_labels=[])
    assert (word["start"], word["end"]) == (0, 4)


def test_a_text_of_too_many_windows_is_refused(served: Callable[..., Served]) -> None:
    given = {"aggregation_strategy": "first", "stride": 10**9}
    status, sentence = served(MODE).refuse(LONG * 9, **given)
    assert status == 413 and "that overlap by 125, and this model takes 128" in sentence


def test_a_stride_needs_entities(served: Callable[..., Served]) -> None:
    status, sentence = served(MODE).refuse(FINE, stride=5)
    assert (status, sentence) == (
        400,
        Sentence("stride", "aggregation_strategy"),
    )


def test_a_text_without_a_readable_token_has_no_entities(served: Callable[..., Served]) -> None:
    assert served(MODE).ask("\u200b") == []
