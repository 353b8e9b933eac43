from __future__ import annotations

from typing import Any

import pytest

from hf_serve.handlers.errors import WrongConfig
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


def test_null_keeps_the_default_of_the_yaml(served: Any) -> None:
    model: Served = served("question_answering", parameters=Frozen(top_k=3))
    assert len(model.ask({"question": "Who?", "context": "Ada sings."}, top_k=None)) == 3


def test_two_names_of_one_parameter_have_one_value(served: Any) -> None:
    model: Served = served("question_answering")
    question = {"question": "Who?", "context": "Ada sings."}
    assert len(model.ask(question, top_k=2, topk=None)) == 2
    assert model.refuse(question, top_k=2, topk=3) == (400, Sentence("top_k", "topk"))
    with pytest.raises(WrongConfig) as caught:
        served("question_answering", parameters=Frozen(top_k=2, topk=3))
    assert str(caught.value) == Sentence("handler.parameters", "top_k", "topk")


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
