from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from handlers.schemas.request import Request, TextStream
from tests.samples import FINE, ODD
from tests.serving import Served

Parameters = dict[str, Any]
SETTINGS: list[Parameters] = [
    {"max_new_tokens": 12},
    {"max_new_tokens": 5, "stop": ["e"]},
    {"max_new_tokens": 9, "stop": ["zz", "never in it"]},
    {"do_sample": True, "seed": 7, "max_new_tokens": 16, "temperature": 3.0},
]


def heard_and_answered(model: Served, asked: list[tuple[str, Parameters]]) -> list[tuple[Any, Any]]:
    """Return for each prompt the parts that were told, and the answer."""
    parts: list[list[str]] = [[] for _ in asked]
    requests = [
        Request(
            text,
            {**given, "return_full_text": False},
            stream=TextStream(parts[number].append),
        )
        for number, (text, given) in enumerate(asked)
    ]
    answers: list[Any] = model.engine.predict(requests)
    return [
        (part, answer[0]["generated_text"]) for part, answer in zip(parts, answers, strict=True)
    ]


@pytest.fixture(scope="module")
def model(served: Callable[..., Served]) -> Served:
    return served("text_generation", family="GPT2")


def test_what_is_told_adds_up_to_the_answer(model: Served) -> None:
    asked = [(text, given) for text in (FINE, ODD, "Ada") for given in SETTINGS]
    for parts, answer in heard_and_answered(model, asked):
        assert answer.startswith("".join(parts))
        # Only half a character, or what may become a stop string, is held back to the end.
        assert len(answer) - len("".join(parts)) <= len("never in it")


def test_a_text_is_told_bit_by_bit(model: Served) -> None:
    ((parts, answer),) = heard_and_answered(model, [(FINE, {"max_new_tokens": 12})])
    assert len(parts) > 3 and "".join(parts) == answer


def test_what_follows_a_stop_string_is_never_told(model: Served) -> None:
    ((_, whole),) = heard_and_answered(model, [(FINE, {"max_new_tokens": 20})])
    stop = whole[len(whole) // 2 :][:2]
    ((parts, answer),) = heard_and_answered(model, [(FINE, {"max_new_tokens": 20, "stop": [stop]})])
    assert "".join(parts) == answer == whole[: whole.index(stop)]


def test_several_texts_at_once_are_not_told(model: Served) -> None:
    given = {"num_beams": 2, "num_return_sequences": 2, "max_new_tokens": 4}
    ((parts, _),) = heard_and_answered(model, [(FINE, given)])
    assert parts == []


def test_a_listener_hears_nothing_twice() -> None:
    parts: list[str] = []
    stream = TextStream(parts.append)
    for text in ("a", "a", "ab", "", "abc", "x"):
        stream.emit(text)
    assert (parts, stream.emitted) == (["a", "b", "c"], "abc")
