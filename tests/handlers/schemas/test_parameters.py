from __future__ import annotations

from typing import Any

import pytest

from handlers.config.choices import modes
from handlers.errors import WrongConfig
from tests.modes import cases
from tests.sentences import Sentence
from tests.serving import Served


class Frozen(dict[str, Any]):
    """A dictionary that a cache takes as its key."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self.items()))


def test_default_parameters_reach_requests_which_may_set_others(served: Any) -> None:
    model: Served = served("sequence_classification", parameters=Frozen(top_k=2))
    assert len(model.ask("A film")) == 2
    assert len(model.ask("A film", top_k=1)) == 1


def test_a_default_under_an_old_name_is_set_by_the_new_one(served: Any) -> None:
    model: Served = served("question_answering", parameters=Frozen(topk=3))
    question = {"question": "Who?", "context": "Ada sings."}
    assert len(model.ask(question)) == 3
    assert len(model.ask(question, top_k=2)) == len(model.ask(question, topk=2)) == 2


@pytest.mark.parametrize("mode", modes())
def test_null_is_the_default_of_every_parameter(served: Any, mode: str) -> None:
    model: Served = served(mode)
    task = model.engine.task
    nulls = dict.fromkeys(task.parameters.model_fields)
    settled = task.read_parameters(nulls).model_dump()
    usual = task.read_parameters({}).model_dump()
    wanting = {name for name, value in settled.items() if value is None and usual[name] is not None}
    wanting -= set(cases(mode).repeatable.get("parameters", {}))
    returns_all = mode in (
        "audio_classification",
        "image_classification",
        "sequence_classification",
    )
    assert wanting == ({"top_k"} if returns_all else set())


def test_null_keeps_the_default_of_the_yaml(served: Any) -> None:
    model: Served = served("question_answering", parameters=Frozen(top_k=3))
    assert len(model.ask({"question": "Who?", "context": "Ada sings."}, top_k=None)) == 3


@pytest.mark.parametrize(
    ("given", "facts"),
    [
        ({"top_kk": 2}, ["top_k", "handler.parameters", "top_kk"]),
        ({"top_k": "2"}, ["2", "handler.parameters", "top_k"]),
    ],
)
def test_wrong_default_parameters_stop_the_load(served: Any, given: Any, facts: list[str]) -> None:
    with pytest.raises(WrongConfig) as caught:
        served("sequence_classification", parameters=Frozen(given))
    assert str(caught.value) == Sentence(*facts)
