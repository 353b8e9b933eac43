"""The contract of every mode in `handlers/tasks/`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hf_serve.handlers.config.handler_section import modes
from tests import tiny
from tests.modes import cases
from tests.samples import INPUTS, PARAMETERS, inputs_of, mode_params, requests_of, text_modes
from tests.sentences import Sentence
from tests.serving import Reply, Served, differences

Model = Callable[..., Served]
LABELLED = [mode for mode in modes() if cases(mode).labels]
every_mode = pytest.mark.parametrize("mode", mode_params(modes()))
every_text_mode = pytest.mark.parametrize("mode", mode_params(text_modes()))
# What is no text, and a part of the error.
NO_TEXTS: list[tuple[Any, str]] = [
    ("", "is empty; send a text"),
    (" \n\t", "is empty; send a text"),
    (None, "null"),
    (5, "a number"),
    (float("nan"), "a number"),
    (True, "true or false"),
    ([["a", "b", "c"]], "a list"),
    ("half \ud83d of it", "half of a surrogate pair at character 5"),
]
# What is no value of a parameter.
NO_VALUES: list[Any] = [{}, [[[]]], "x" * 100, -1e99, float("inf"), -(10**400)]


def bodies(mode: str) -> list[dict[str, Any]]:
    return [{"inputs": inputs, "parameters": given} for inputs, given in requests_of(mode)]


@pytest.fixture(scope="module")
def alone(served: Model) -> Callable[[str], list[Reply]]:
    """The answers to the bodies of a mode, sent one by one."""
    return cache(lambda mode: [served(mode).post(body)[0] for body in bodies(mode)])


def test_every_mode_has_cases() -> None:
    found = {mode: (len(cases(mode).inputs), len(cases(mode).parameters)) for mode in modes()}
    assert not [
        mode for mode, (inputs, parameters) in found.items() if inputs < 2 or not parameters
    ]


@every_mode
def test_an_answer_does_not_depend_on_its_batch(served: Model, alone: Any, mode: str) -> None:
    contents = bodies(mode)
    numbers = [int(number) for number in np.random.default_rng(0).permutation(len(contents))]
    together = served(mode).post(*[contents[number] for number in numbers])
    assert all(status == 200 for status, _ in together)
    expected = [list(alone(mode)[number]) for number in numbers]
    assert not differences([list(reply) for reply in together], expected, 1e-5)


@every_mode
def test_different_inputs_get_different_answers(alone: Any, mode: str) -> None:
    answers = [json.dumps(answer) for _, answer in alone(mode)[: len(INPUTS[mode])]]
    assert len(set(answers)) == len(answers)


@every_mode
def test_a_bad_row_gets_an_error_and_the_other_rows_their_answers(
    served: Model, alone: Any, mode: str
) -> None:
    good = bodies(mode)[:3]
    first, bad, second, third = served(mode).post(good[0], {"inputs": 5}, good[1], good[2])
    assert bad[0] == 400
    found = [list(reply) for reply in (first, second, third)]
    assert not differences(found, [list(reply) for reply in alone(mode)[:3]], 1e-5)


@every_text_mode
def test_what_is_not_a_text_is_refused(served: Model, mode: str) -> None:
    for text, fragment in NO_TEXTS:
        status, sentence = served(mode).refuse(inputs_of(mode, text))
        assert status == 400
        assert sentence.startswith(cases(mode).text_name)
        assert fragment in sentence


@every_mode
def test_an_object_with_unknown_keys_is_refused(served: Model, mode: str) -> None:
    for inputs in ({}, {"unknown": 1}, {"text_pair": "alone"}, {"\ud83d": "x"}):
        status, sentence = served(mode).refuse(inputs)
        assert status == 400
        assert re.search("inputs|text", sentence)


@every_mode
def test_the_error_for_an_unknown_parameter_suggests_a_name(served: Model, mode: str) -> None:
    model = served(mode)
    for name in model.engine.task.parameters.model_fields:
        status, sentence = model.refuse(INPUTS[mode][0], **{f"{name}x": 1})
        assert (status, sentence) == (
            400,
            Sentence(f"{name}x", name),
        )


@every_mode
def test_a_parameter_of_a_wrong_type_is_refused(served: Model, mode: str) -> None:
    model = served(mode)
    given = [
        (name, value) for name in model.engine.task.parameters.model_fields for value in NO_VALUES
    ]
    for name, value in given:
        parameters = {**cases(mode).brief, name: value}
        ((status, answer),) = model.post({"inputs": INPUTS[mode][0], "parameters": parameters})
        accepted = status == 200 and (name, value) in cases(mode).accepted
        accepted |= (
            status == 422 and name in ("adapter_id", "prompt", "instruction") and value == "x" * 100
        )
        assert accepted or (status == 400 and len(answer["message"]) < 200), (name, answer)


@every_mode
def test_null_is_the_default_of_every_parameter(served: Model, mode: str) -> None:
    task = served(mode).engine.task
    nulls = dict.fromkeys(task.parameters.model_fields)
    settled = task.read_parameters(nulls).model_dump()
    usual = task.read_parameters({}).model_dump()
    wanting = {name for name, value in settled.items() if value is None and usual[name] is not None}
    wanting -= set(cases(mode).repeatable.get("parameters", {}))
    returns_all = {"top_k": None} in cases(mode).parameters
    assert wanting == ({"top_k"} if returns_all else set())


@every_text_mode
def test_a_text_of_too_many_characters_is_refused(served: Model, mode: str) -> None:
    model = served(mode, max_length=16, truncation=False, max_characters=200)
    status, sentence = model.refuse(inputs_of(mode, "a " * 101))
    assert status == 413
    assert "has 202 characters, and this model takes 200" in sentence


@pytest.mark.parametrize(
    "mode", mode_params(mode for mode in text_modes() if not cases(mode).in_windows)
)
def test_a_text_of_too_many_tokens_is_truncated_or_refused_as_configured(
    served: Model, mode: str
) -> None:
    few, text = PARAMETERS[mode][0], inputs_of(mode, "a fox " * 20)
    model = served(mode, max_length=16, truncation=False, max_characters=200)
    status, sentence = model.refuse(text, **few)
    assert status == 413
    assert "this model takes 16; shorten it" in sentence
    assert served(mode, max_length=16, truncation=True).ask(text, **few)


@pytest.mark.parametrize(
    ("mode", "form"),
    [
        *((mode, "one by one") for mode in LABELLED),
        ("sequence_classification", "a list"),
        ("sequence_classification", "a text"),
    ],
)
def test_labels_come_from_index_to_name(tmp_path: Path, mode: str, form: str) -> None:
    count = len(cases(mode).labels)
    names = [f"B-{number}" for number in range(count)]
    listed: Any = names if form == "a list" else f"[{', '.join(names)}]"
    document = dict(enumerate(names)) if form == "one by one" else {"label_list": listed}
    folder = tiny.write(tmp_path / "model", mode)
    (folder / "index_to_name.json").write_text(json.dumps(document))
    answer = Served(folder, mode).ask(INPUTS[mode][0], **PARAMETERS[mode][0])
    found = {item.get("label", item.get("entity")) for item in answer}
    assert found and found <= set(names)
