from __future__ import annotations

from typing import Any

import pytest

from handlers.config.choices import suggest
from handlers.config.quoting import enumerate_names, quote, shorten


@pytest.mark.parametrize(
    "value",
    ["x" * 10**6, 10**3000, 10**9000, ["x" * 99] * 99, {"x" * 99: [[[[[1]]]]]}, b"x" * 99, None],
    ids=range(7),
)
def test_a_quoted_value_is_short(value: Any) -> None:
    assert 0 < len(quote(value)) <= 60


def test_short_values_are_quoted_as_they_are() -> None:
    assert [quote("top_kk"), quote(2.5), quote([1])] == ["'top_kk'", "2.5", "[1]"]
    assert (shorten("x" * 60), shorten("x" * 61)) == ("x" * 60, f"{'x' * 57}...")


def test_of_many_names_the_first_are_listed() -> None:
    assert enumerate_names(["a", "b"]) == "a, b"
    listed = enumerate_names({f"{number}{'x' * 99}": 0 for number in range(1000)})
    assert listed.endswith(", and 988 more") and len(listed) < 1300


def test_the_closest_choice_is_suggested() -> None:
    assert suggest("top_kk", ["top_p", "top_k"]) == "did you mean 'top_k'?"
    assert suggest("zz", ["top_p", "top_k"]) == "use one of top_p, top_k"


def test_long_words_and_many_choices_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[Any] = []

    def compare(word: str, choices: list[str], n: int) -> list[str]:
        compared.extend([word, *choices])
        return choices[:0]

    monkeypatch.setattr("handlers.config.choices.get_close_matches", compare)
    suggest("x" * 10**6, ["top_k"])
    assert not compared
    suggest("top_k", ["x" * 10**6, *(f"choice {number}" for number in range(10_000))])
    assert len(compared) <= 200 and max(map(len, compared)) < 20
