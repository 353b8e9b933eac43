from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hf_serve.handlers.types.request import Request
from tests.samples import FINE, ODD
from tests.serving import Served, stream_into

Parameters = dict[str, Any]
SETTINGS: list[Parameters] = [
    {"max_new_tokens": 12},
    {"max_new_tokens": 5, "stop": ["e"]},
    {"max_new_tokens": 9, "stop": ["zz", "never in it"]},
    {"do_sample": True, "seed": 7, "max_new_tokens": 16, "temperature": 3.0},
]


def parts_and_answers(
    model: Served, prompts: list[tuple[str, Parameters]]
) -> list[tuple[Any, Any]]:
    """Return the streamed parts and the answer for each prompt."""
    parts: list[list[str]] = [[] for _ in prompts]
    requests = [
        Request(
            text,
            {**given, "return_full_text": False},
            stream=stream_into(parts[number]),
        )
        for number, (text, given) in enumerate(prompts)
    ]
    answers: list[Any] = model.engine.predict(requests)
    return [
        (part, answer[0]["generated_text"]) for part, answer in zip(parts, answers, strict=True)
    ]


@pytest.fixture(scope="module")
def model(served: Callable[..., Served]) -> Served:
    return served("text_generation", family="GPT2")


def test_the_parts_add_up_to_the_answer(model: Served) -> None:
    prompts = [(text, given) for text in (FINE, ODD, "Ada") for given in SETTINGS]
    for parts, answer in parts_and_answers(model, prompts):
        assert answer.startswith("".join(parts))
        # Only half a character, or what may become a stop string, is not sent before the end.
        assert len(answer) - len("".join(parts)) <= len("never in it")


def test_a_text_is_sent_in_many_parts(model: Served) -> None:
    ((parts, answer),) = parts_and_answers(model, [(FINE, {"max_new_tokens": 12})])
    assert len(parts) > 3 and "".join(parts) == answer


def test_what_follows_a_stop_string_is_never_sent(model: Served) -> None:
    ((_, whole),) = parts_and_answers(model, [(FINE, {"max_new_tokens": 20})])
    stop = whole[len(whole) // 2 :][:2]
    ((parts, answer),) = parts_and_answers(model, [(FINE, {"max_new_tokens": 20, "stop": [stop]})])
    assert "".join(parts) == answer == whole[: whole.index(stop)]


def test_several_sequences_are_not_streamed(model: Served) -> None:
    given = {"num_beams": 2, "num_return_sequences": 2, "max_new_tokens": 4}
    ((parts, _),) = parts_and_answers(model, [(FINE, given)])
    assert parts == []


def test_no_text_is_emitted_twice() -> None:
    parts: list[str] = []
    stream = stream_into(parts)
    for text in ("a", "a", "ab", "", "abc", "x"):
        stream.emit(text)
    assert (parts, stream.emitted) == (["a", "b", "c"], "abc")
