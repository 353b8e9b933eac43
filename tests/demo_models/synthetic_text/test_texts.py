"""The four generators: their texts are seeded, varied and labelled correctly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hf_serve.demo_models.synthetic_text.entities import LABELS, Tagged, sentences, spans_of
from hf_serve.demo_models.synthetic_text.grammar import Span, Split
from hf_serve.demo_models.synthetic_text.questions import questions
from hf_serve.demo_models.synthetic_text.sentiment import reviews
from hf_serve.demo_models.synthetic_text.stories import library, stories

SPLITS: tuple[Split, ...] = ("train", "held_out")
Generator = Callable[[Split, int, int], list[Any]]


@pytest.mark.parametrize("write", [reviews, sentences, questions, stories, library])
@pytest.mark.parametrize("split", SPLITS)
def test_the_same_seed_writes_the_same_rows(write: Generator, split: Split) -> None:
    assert write(split, 60, 3) == write(split, 60, 3)
    assert write(split, 60, 3) != write(split, 60, 4)


@pytest.mark.parametrize("write", [reviews, sentences, questions, library])
def test_rows_hardly_repeat(write: Generator) -> None:
    assert len({str(row) for row in write("train", 1000, 0)}) > 850


def test_half_of_the_reviews_are_positive() -> None:
    assert [review.label for review in reviews("train", 4, 0)] == [0, 1, 0, 1]


def test_a_negated_adjective_has_the_opposite_label() -> None:
    negated = [row for row in reviews("train", 2000, 0) if row.text.startswith("Not a ")]
    assert negated
    assert all((" terrible " in row.text) <= row.label for row in negated)
    assert all((" great " in row.text) <= 1 - row.label for row in negated)


@pytest.mark.parametrize("split", SPLITS)
def test_names_are_marked_without_their_article(split: Split) -> None:
    rows = sentences(split, 300, 0)
    names = [row.text[span.start : span.end] for row in rows for span in row.spans]
    kinds = {span.label for row in rows for span in row.spans}
    assert kinds == {"PER", "ORG", "LOC", "MISC"}
    assert all(name and name == name.strip() for name in names)
    assert not [name for name in names if name.lower().startswith("the ")]
    assert [row for row in rows if not row.spans] or split == "held_out"


def test_labels_of_tokens_are_found_by_their_characters() -> None:
    tagged = Tagged("Near Oslo waits Eva Holm.", [Span("LOC", 5, 9), Span("PER", 16, 24)])
    offsets = [(0, 4), (5, 7), (7, 9), (10, 15), (16, 19), (20, 24), (24, 25)]
    labels = [LABELS[index] for index in tagged.labels(offsets)]
    assert labels == ["O", "B-LOC", "I-LOC", "O", "B-PER", "I-PER", "O"]
    assert spans_of(labels, offsets) == tagged.spans


def test_adjacent_labels_of_another_kind_start_a_new_span() -> None:
    offsets = [(0, 1), (1, 2), (2, 3), (3, 4)]
    found = spans_of(["I-PER", "I-LOC", "B-LOC", "I-LOC"], offsets)
    assert found == [Span("PER", 0, 1), Span("LOC", 1, 2), Span("LOC", 2, 4)]


@pytest.mark.parametrize("split", SPLITS)
def test_answers_are_in_the_context_and_not_in_the_question(split: Split) -> None:
    rows = questions(split, 400, 0)
    answered = [row for row in rows if row.answer]
    assert all(row.context[row.start : row.end] == row.answer for row in answered)
    assert all(row.answer == row.answer.strip(" .?") for row in answered)
    inside = [row for row in answered if row.answer.lower() in row.question.lower()]
    assert len(inside) < len(answered) / 50


@pytest.mark.parametrize("split", SPLITS)
def test_some_questions_have_no_answer(split: Split) -> None:
    rows = questions(split, 1000, 0)
    assert 0.07 < sum(not row.answer for row in rows) / len(rows) < 0.18


def test_passages_are_short_and_long_and_answered_everywhere() -> None:
    rows = [row for row in questions("train", 1500, 0) if row.answer]
    words = sorted(len(row.context.split()) for row in rows)
    assert words[len(words) // 10] < 20
    assert 60 < words[-1] < 200
    places = sorted(row.start / len(row.context) for row in rows)
    assert places[len(places) // 5] < 0.25
    assert places[-len(places) // 5] > 0.6


def test_a_story_keeps_the_name_of_its_hero() -> None:
    for story in stories("held_out", 40, 0):
        assert sum(story.count(name) > 0 for name in ("Greta", "Wilma", "Pippa", "Olive")) == 1


def test_the_library_holds_the_other_lessons_texts() -> None:
    texts = library("train", 60, 5)
    assert len(texts) == 60
    assert set(texts) > {review.text for review in reviews("train", 10, 5)}
    assert set(texts) > {question.context for question in questions("train", 10, 5)}
