"""Texts that are written by hand: they are well-formed, and none that measures is trained on."""

from __future__ import annotations

from random import Random

import pytest

from hf_serve.demo_models.synthetic_text.entities import mixed_sentences, written_sentences
from hf_serve.demo_models.synthetic_text.grammar import MARK, Split
from hf_serve.demo_models.synthetic_text.passages import (
    asked,
    mixed_questions,
    passages,
    unanswerable,
)
from hf_serve.demo_models.synthetic_text.sentiment import mixed_reviews, written_reviews
from hf_serve.demo_models.synthetic_text.written import entries, repeated

SPLITS: tuple[Split, ...] = ("train", "validation", "held_out")


def texts(split: Split) -> list[str]:
    reviews = [review.text for review in written_reviews(split)]
    return reviews + [sentence.text for sentence in written_sentences(split)] + passages(split)


def test_the_splits_share_no_text() -> None:
    train, validation, held_out = (set(texts(split)) for split in SPLITS)
    assert not train & validation
    assert not (train | validation) & held_out


def test_a_tenth_is_for_validation() -> None:
    train, validation = len(texts("train")), len(texts("validation"))
    assert 0.08 < validation / (train + validation) < 0.12


@pytest.mark.parametrize("split", SPLITS)
def test_answers_stand_in_their_passages_and_nowhere_in_the_question(split: Split) -> None:
    written = asked(split)
    assert len(written) > 100
    wrong = [
        row.question
        for number, row in written
        if row.context != passages(split)[number]
        or not row.answer.strip(" .?")
        or not all(other in row.context for other in row.others)
    ]
    assert not wrong
    assert all(not row.answer for row in unanswerable(split))


@pytest.mark.parametrize("split", SPLITS)
def test_names_have_kinds_and_no_brackets_are_left(split: Split) -> None:
    kinds = {kind for text in entries("sentences", split) for kind, _ in MARK.findall(text)}
    assert kinds == {"PER", "ORG", "LOC", "MISC"}
    assert not [row.text for row in written_sentences(split) if {"[", "]"} & set(row.text)]


def test_both_labels_have_about_as_many_reviews() -> None:
    for split in SPLITS:
        positive = [review.label for review in written_reviews(split)]
        assert 0.4 < sum(positive) / len(positive) < 0.6


def test_half_of_the_rows_for_training_are_written_by_hand() -> None:
    reviews = mixed_reviews(100, 3)
    known = written_reviews("train")
    assert sum(review in known for review in reviews) == 50
    assert reviews == mixed_reviews(100, 3)
    assert reviews != mixed_reviews(100, 4)
    assert len(mixed_sentences(100, 3)) == len(mixed_questions(100, 3)) == 100


def test_sentences_get_other_names_at_the_same_places() -> None:
    written = {tuple(span.label for span in row.spans) for row in written_sentences("train")}
    known = {row.text for row in written_sentences("train")}
    renamed = [row for row in mixed_sentences(200, 1) if row.text not in known]
    assert sum(tuple(span.label for span in row.spans) in written for row in renamed) > 30


def test_questions_keep_their_answers_in_longer_contexts() -> None:
    answers = {row.question: row.answer for _, row in asked("train")}
    rows = [row for row in mixed_questions(400, 1) if row.question in answers]
    kept = [row for row in rows if row.answer]
    assert all(row.answer == answers[row.question] for row in kept)
    assert 0 < len(rows) - len(kept) < len(rows) / 4
    assert any(row.start > 300 for row in kept)


def test_items_are_repeated_equally_often() -> None:
    drawn = repeated("abc", 8, Random(1))
    assert sorted(drawn.count(item) for item in "abc") == [2, 3, 3]
