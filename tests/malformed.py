"""Hypothesis strategies for requests that are wrong by construction, for every protocol."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import copy
from typing import Any

from hypothesis import strategies as st

from hf_serve.handlers import tasks
from hf_serve.handlers.config.handler_section import modes
from tests.e2e.asking import Question

JSON = {"Content-Type": "application/json"}
GOOD: dict[str, Any] = {
    mode: tasks.get(mode).description.wire.example["inputs"] for mode in modes()
}
# A name that no body and no mode has.
NAMES = st.from_regex(r"zz_[a-z]{0,9}", fullmatch=True)
NUMBERS = st.integers() | st.floats() | st.booleans() | st.none()
NOT_NULL = NUMBERS.filter(lambda value: value is not None)
EMPTY = st.sampled_from(["", " ", "\n\t", {}, []])
HALVES = st.sampled_from(["\ud83d", "a \udc00 b", "\udfff" * 9])
KEYS = NAMES | HALVES
# Deeper than Python and its JSON can read.
NESTED_JSON = '{"a": ' * 100_000 + "1" + "}" * 100_000
DEEP = st.integers(50, 400).map(lambda depth: json.loads("[" * depth + "]" * depth))
NOT_INPUTS = (
    NUMBERS
    | EMPTY
    | HALVES
    | DEEP
    | st.dictionaries(NAMES, NUMBERS | HALVES, min_size=1, max_size=3)
    | st.lists(NUMBERS | HALVES | EMPTY, min_size=1, max_size=4)
)
NOT_A_LIST: st.SearchStrategy[Any] = (
    NUMBERS | st.dictionaries(NAMES, NUMBERS, max_size=2) | st.just("x") | st.just([])
)
NOT_COUNTS: st.SearchStrategy[Any] = st.sampled_from([-1, 0.5, "two", [], {}, True])
NOT_PARAMETERS = (
    st.dictionaries(KEYS, NUMBERS | DEEP, min_size=1, max_size=3)
    | st.sampled_from([5, "x", [1], True])
    | st.fixed_dictionaries({"top_k": NOT_COUNTS})
    | st.fixed_dictionaries({"max_new_tokens": NOT_COUNTS})
    | st.fixed_dictionaries({"aggregation_strategy": NOT_NULL | NAMES})
)


def _question(path: str, value: Any) -> Question:
    return Question(path, json.dumps(value).encode(), JSON)


def _wrong_inputs(mode: str) -> st.SearchStrategy[Any]:
    good = GOOD[mode]
    return (
        st.fixed_dictionaries({"inputs": NOT_INPUTS})
        | st.fixed_dictionaries({"inputs": st.just(good), "parameters": NOT_PARAMETERS})
        | NAMES.map(lambda name: {"inputs": good, name: 1})
        | st.sampled_from([{}, {"parameters": {}}, 5, None, True, [], [[]], {"text": 5}])
        | NOT_INPUTS.filter(lambda value: not isinstance(value, str))
    )


def _wrong_instances(mode: str) -> st.SearchStrategy[Any]:
    one = st.fixed_dictionaries({"instances": st.lists(NOT_INPUTS, min_size=1, max_size=3)})
    return one | st.fixed_dictionaries({"instances": NOT_A_LIST})


def _wrong_tensors(mode: str) -> st.SearchStrategy[Any]:
    tensor = st.fixed_dictionaries(
        {
            "name": st.just("args"),
            "shape": st.sampled_from([[1], [2], [-1], [1, 9], "x", None, [1.5]]),
            "datatype": st.sampled_from(["BYTES", "FP32", "zz", 5, None]),
            "data": st.lists(NUMBERS | EMPTY | HALVES, max_size=3) | NUMBERS,
        }
    )
    missing = tensor.flatmap(
        lambda given: st.sampled_from(sorted(given)).map(
            lambda key: {name: given[name] for name in given if name != key}
        )
    )
    return (
        st.fixed_dictionaries({"inputs": st.lists(missing, min_size=1, max_size=2)})
        | st.fixed_dictionaries({"inputs": st.lists(tensor, min_size=1, max_size=1)})
        | st.tuples(KEYS, NUMBERS, st.booleans()).map(lambda drawn: _strange_tensors(mode, *drawn))
    )


def _strange_tensors(mode: str, key: str, value: Any, in_output: bool) -> dict[str, Any]:
    """Return valid tensors with an unknown key in one part of the body."""
    texts = GOOD[mode] if isinstance(GOOD[mode], dict) else {"args": GOOD[mode]}
    strange, output = {key: value}, {"name": "output"}
    inputs: list[dict[str, Any]] = [
        {"name": name, "shape": [1], "datatype": "BYTES", "data": [text]}
        for name, text in texts.items()
    ]
    if in_output:
        return {"inputs": inputs, "outputs": [output | strange]}
    return {"inputs": [*inputs[:-1], inputs[-1] | strange], "outputs": [output]}


def _wrong_chats() -> st.SearchStrategy[Any]:
    message = st.dictionaries(st.sampled_from(["role", "content", "zz"]), NUMBERS, max_size=3)
    chat = [{"role": "user", "content": "Once upon a time"}]
    settings: st.SearchStrategy[dict[str, Any]] = st.one_of(
        st.fixed_dictionaries({"temperature": st.sampled_from([9, -1, "hot"])}),
        st.fixed_dictionaries({"max_tokens": st.sampled_from([0, -1, 10**9, "many"])}),
        st.fixed_dictionaries({"stop": NOT_NULL}),
        st.fixed_dictionaries({"n": st.sampled_from([0, 99, "two"])}),
        st.fixed_dictionaries({"tools": st.just([{}]), "stream": st.booleans()}),
    )
    return (
        st.fixed_dictionaries({"messages": st.lists(message, max_size=3)})
        | st.fixed_dictionaries({"messages": NOT_A_LIST})
        | settings.map(lambda given: {"messages": chat, **given})
        | st.sampled_from([{}, [], 5, {"prompt": "x"}])
    )


def _broken(mode: str) -> st.SearchStrategy[bytes]:
    """Bodies that are declared as JSON, and are not."""
    whole = json.dumps({"inputs": GOOD[mode]}).encode()
    places = st.integers(1, len(whole) - 1)
    truncated = places.map(lambda place: whole[:place])
    corrupted = places.map(lambda place: whole[:place] + b"\xff\xfe" + whole[place:])
    noise = st.binary(max_size=60).filter(_is_no_json)
    deep = st.integers(10_000, 60_000).map(lambda depth: b'{"inputs":' + b"[" * depth)
    return truncated | corrupted | noise | deep


def _is_no_json(body: bytes) -> bool:
    try:
        json.loads(body.decode())
    except ValueError:
        return True
    return False


def malformed(mode: str, path: str) -> st.SearchStrategy[Question]:
    """Return requests to a mode's model that no protocol can answer.

    Args:
        mode: the model's mode.
        path: the model's path, such as `/predictions/m`.
    """
    values = _wrong_inputs(mode) | _wrong_instances(mode) | _wrong_tensors(mode)
    return values.map(lambda value: _question(path, value)) | _broken(mode).map(
        lambda body: Question(path, body, JSON)
    )


def malformed_chats(path: str) -> st.SearchStrategy[Question]:
    """Return requests to the chat path of a model that OpenAI's API refuses."""
    return _wrong_chats().map(lambda value: _question(f"{path}/1.0/v1/chat/completions", value))


def with_others(value: Any) -> Iterator[Any]:
    """Return a value of JSON with each of its parts replaced by one of another type."""
    yield from ({}, [], [[]], 5, None, "a")
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            for other in with_others(value[key]):
                changed = copy(value)
                changed[key] = other
                yield changed
