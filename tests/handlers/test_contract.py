"""The contract of every mode in `handlers/tasks/`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from handlers.config.choices import modes
from tests import tiny
from tests.modes import cases
from tests.samples import INPUTS, PARAMETERS, inputs_of, requests_of, text_modes
from tests.sentences import Sentence
from tests.serving import Served, differences

Model = Callable[..., Served]
LABELLED = [mode for mode in modes() if cases(mode).labels]
every_mode = pytest.mark.parametrize("mode", modes())
every_text_mode = pytest.mark.parametrize("mode", text_modes())


def bodies(mode: str) -> list[dict[str, Any]]:
    return [{"inputs": inputs, "parameters": given} for inputs, given in requests_of(mode)]


@every_mode
def test_every_mode_has_cases(mode: str) -> None:
    assert len(cases(mode).inputs) > 1
    assert cases(mode).parameters


@every_mode
@pytest.mark.parametrize("order", [0, 1])
def test_an_answer_does_not_depend_on_its_batch(served: Model, mode: str, order: int) -> None:
    model, contents = served(mode), bodies(mode)
    alone = [model.post(body)[0] for body in contents]
    numbers = [int(number) for number in np.random.default_rng(order).permutation(len(contents))]
    together = model.post(*[contents[number] for number in numbers])
    assert all(status == 200 for status, _ in together)
    expected = [list(alone[number]) for number in numbers]
    assert not differences([list(reply) for reply in together], expected, 1e-5)


@every_mode
def test_different_inputs_get_different_answers(served: Model, mode: str) -> None:
    answers = [
        json.dumps(served(mode).ask(inputs, **PARAMETERS[mode][0])) for inputs in INPUTS[mode]
    ]
    assert len(set(answers)) == len(answers)


@every_mode
def test_a_bad_row_gets_an_error_and_the_other_rows_their_answers(served: Model, mode: str) -> None:
    model, good = served(mode), bodies(mode)[:3]
    expected = model.post(*good)
    first, bad, second, third = model.post(good[0], {"inputs": 5}, good[1], good[2])
    assert bad[0] == 400
    assert not differences([*map(list, (first, second, third))], [*map(list, expected)], 1e-5)


@every_text_mode
@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("", "is empty; send a text"),
        (" \n\t", "is empty; send a text"),
        (None, "null"),
        (5, "a number"),
        (float("nan"), "a number"),
        (True, "true or false"),
        ([["a", "b", "c"]], "a list"),
        ("half \ud83d of it", "half of a surrogate pair at character 5"),
    ],
)
def test_what_is_not_a_text_is_refused(served: Model, mode: str, text: Any, fragment: str) -> None:
    status, sentence = served(mode).refuse(inputs_of(mode, text))
    assert status == 400
    assert sentence.startswith(cases(mode).text_name)
    assert fragment in sentence


@every_mode
@pytest.mark.parametrize("inputs", [{}, {"unknown": 1}, {"text_pair": "alone"}, {"\ud83d": "x"}])
def test_an_object_with_unknown_keys_is_refused(served: Model, mode: str, inputs: Any) -> None:
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
@pytest.mark.parametrize("value", [{}, [[[]]], "x" * 100, -1e99, float("inf"), -(10**400)])
def test_a_parameter_of_a_wrong_type_is_refused(served: Model, mode: str, value: Any) -> None:
    model = served(mode)
    for name in model.engine.task.parameters.model_fields:
        ((status, answer),) = model.post({"inputs": INPUTS[mode][0], "parameters": {name: value}})
        accepted = status == 200 and (name, value) in cases(mode).accepted
        accepted |= status == 422 and name in ("adapter_id", "prompt") and value == "x" * 100
        assert accepted or (status == 400 and len(answer["message"]) < 200), (name, answer)


@every_text_mode
def test_a_text_of_too_many_characters_is_refused(served: Model, mode: str) -> None:
    status, sentence = served(mode, max_characters=20).refuse(inputs_of(mode, "a " * 11))
    assert status == 413
    assert "has 22 characters, and this model takes 20" in sentence


@pytest.mark.parametrize("mode", [mode for mode in text_modes() if not cases(mode).in_windows])
def test_a_text_of_too_many_tokens_is_truncated_or_refused_as_configured(
    served: Model, mode: str
) -> None:
    few, text = PARAMETERS[mode][0], inputs_of(mode, "a fox " * 20)
    status, sentence = served(mode, max_length=16, truncation=False).refuse(text, **few)
    assert status == 413
    assert "this model takes 16; shorten it" in sentence
    assert served(mode, max_length=16, truncation=True).ask(text, **few)


@pytest.mark.parametrize("mode", LABELLED)
@pytest.mark.parametrize("form", ["one by one", "a list", "a text"])
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
