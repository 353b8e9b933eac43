"""Pairs of texts: what is too much is refused before it is tokenized in each pair."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hf_serve.handlers.batching import tokenization
from hf_serve.handlers.errors import DeadlineExceeded
from hf_serve.handlers.process.deadline import Deadline
from hf_serve.handlers.types.request import Request
from tests.clock import Clock
from tests.serving import Served, differences

Load = Callable[..., Served]
MODES = ["sentence_ranking", "zero_shot_classification"]
LONG = "sing " * 10_000


@pytest.fixture
def characters(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The characters of each call of the tokenizer for pairs."""
    counts: list[int] = []

    def counted(tokenizer: Any, texts: Any, **options: Any) -> Any:
        counts.append(sum(len(text) for pair in texts for text in pair if text))
        return tokenization.tokenize(tokenizer, texts, **options)

    monkeypatch.setattr("hf_serve.handlers.tasks.bases.text_pairs.tokenize", counted)
    return counts


def test_a_long_query_is_tokenized_once_and_not_with_each_text(
    served: Load, characters: list[int]
) -> None:
    ranking = {"query": LONG, "texts": ["Nina sings."] * 100}
    status, sentence = served("sentence_ranking").refuse(ranking)
    assert (status, "shorten the query" in sentence) == (413, True)
    assert sum(characters) <= 2 * len(LONG)


def test_a_long_label_is_tokenized_once_for_each_text(served: Load, characters: list[int]) -> None:
    labels = {"candidate_labels": [LONG] * 20}
    status, sentence = served("zero_shot_classification").refuse(["Nina sings."] * 4, **labels)
    assert (status, "send shorter labels" in sentence) == (413, True)
    assert sum(characters) <= 4 * 2 * len(LONG)


def test_pairs_above_the_limit_of_a_request_are_not_tokenized(
    served: Load, characters: list[int]
) -> None:
    model = served("zero_shot_classification", max_rows=64, max_request_rows=64)
    labels = [f"label {number}" for number in range(32)]
    status, sentence = model.refuse(["Nina sings."] * 60, candidate_labels=labels)
    assert (status, "this model takes 64 a request" in sentence) == (413, True)
    assert sum(characters) < 64 * 100


def test_a_request_with_too_many_pairs_changes_none_beside_it(served: Load) -> None:
    model = served("zero_shot_classification", max_rows=8, max_request_rows=8)
    fine = {"inputs": "Nina sings.", "parameters": {"candidate_labels": ["music", "weather"]}}
    much = {"inputs": ["Nina sings."] * 8, "parameters": {"candidate_labels": ["a", "b"]}}
    first, refused, last = model.post(fine, much, fine)
    assert refused[0] == 413
    (alone,) = model.post(fine)
    assert alone[0] == 200
    assert not differences([first, last], [alone, alone], 1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_long_texts_with_few_tokens_are_answered(served: Load, mode: str) -> None:
    spaces = f"Nina{' ' * 3_000}sings."
    inputs = {
        "sentence_ranking": {"query": spaces, "texts": [spaces]},
        "zero_shot_classification": {"text": spaces, "candidate_labels": [spaces]},
    }
    assert served(mode).ask(inputs[mode])


@pytest.mark.parametrize("long", ["a" * 5_000, f"Nina{' ' * 5_000}sings."])
def test_a_text_in_each_pair_has_few_characters_for_each_token(served: Load, long: str) -> None:
    refused = [
        served("sentence_ranking").refuse({"query": long, "texts": ["Nina"]}),
        served("zero_shot_classification").refuse({"text": long, "candidate_labels": "music"}),
        served("zero_shot_classification").refuse({"text": "Nina", "candidate_labels": [long]}),
    ]
    assert [status for status, _ in refused] == [413] * 3
    assert all("characters for few tokens" in sentence for _, sentence in refused)


def test_pairs_are_not_tokenized_after_the_deadline(
    served: Load, characters: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, clock = served("zero_shot_classification"), Clock()
    monkeypatch.setattr("hf_serve.handlers.batch.CHUNK_CHARACTERS", 10_000)
    tokenize = tokenization.tokenize

    def slow(*arguments: Any, **options: Any) -> Any:
        clock.now += 1
        return tokenize(*arguments, **options)

    monkeypatch.setattr(tokenization, "tokenize", slow)
    labels = {"candidate_labels": [f"label {number}" for number in range(100)]}
    requests = [Request("Nina sings.", labels)] * 8
    outcomes = model.engine.predict(requests, deadline=Deadline(4.0, clock))
    late = [isinstance(outcome, DeadlineExceeded) for outcome in outcomes]
    assert any(late) and not all(late)
