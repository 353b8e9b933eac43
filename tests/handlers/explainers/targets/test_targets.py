"""What a request may ask to be explained, in each mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.serving import Served, explanation_of

Load = Callable[..., Served]
QUESTION = {"question": "Who sings?", "context": "Nina Vogel sings in the old bar near the river."}
TEXT = "Ada lives in Paris and works in London."


def why(served: Served, inputs: Any, **parameters: Any) -> tuple[int, Any]:
    body = {"inputs": inputs, "parameters": parameters}
    ((status, told),) = served.post(explanation_of(body))
    return status, told


@pytest.mark.parametrize("target", [2, "POSITIVE"])
def test_a_class_is_named_by_number_or_label(served: Load, target: Any) -> None:
    status, told = why(served("sequence_classification"), "A fine film.", target=target)
    assert status == 200
    assert told["target"]["label"] == "POSITIVE"
    assert told["target"]["index"] == 2
    assert 0 < told["target"]["score"] < 1


def test_without_a_target_the_prediction_is_explained(served: Load) -> None:
    _, told = why(served("sequence_classification"), "A fine film.")
    assert told["target"]["label"] == told["prediction"]["label"]


@pytest.mark.parametrize("target", [9, -1, "HAPPY", True, 1.5, [1, 2]])
def test_no_class_of_that_name_is_a_bad_request(served: Load, target: Any) -> None:
    status, told = why(served("sequence_classification"), "A fine film.", target=target)
    assert status == 400
    assert "NEGATIVE, NEUTRAL, POSITIVE" in told["message"]


def test_a_token_and_its_class_in_json(served: Load) -> None:
    status, told = why(served("token_classification"), TEXT, target=[1, "B-PER"])
    assert status == 200
    assert told["target"]["tokens"] == [1]
    assert told["target"]["label"] == "B-PER"


def test_a_token_and_its_class_as_the_old_example_writes_them(served: Load) -> None:
    post = explanation_of(b"{'text': 'Ada lives in Paris.', 'target': (1, 2)}")
    ((status, told),) = served("token_classification").post(post)
    assert status == 200
    assert told["target"]["label"] == "I-PER"


def test_a_span_of_characters_in_a_text(served: Load) -> None:
    start = TEXT.index("Paris")
    target = {"start": start, "end": start + 5, "label": "B-LOC"}
    status, told = why(served("token_classification"), TEXT, target=target)
    assert status == 200
    assert TEXT[told["target"]["start"] : told["target"]["end"]] == "Paris"
    assert told["target"]["label"] == "B-LOC"


@pytest.mark.parametrize(
    "target", [[99, 0], [0], "B-PER", {"start": 3}, {"start": 0, "end": 999}, {"token": "x"}]
)
def test_no_such_token_is_a_bad_request(served: Load, target: Any) -> None:
    status, told = why(served("token_classification"), TEXT, target=target)
    assert status == 400
    assert "target" in told["message"]


def test_an_answer_is_explained_at_both_ends(served: Load) -> None:
    status, told = why(served("question_answering"), QUESTION)
    assert status == 200
    assert len(told["importances_answer_start"]) == len(told["words"])
    assert len(told["importances_answer_end"]) == len(told["words"])
    assert isinstance(told["delta_start"], float)
    assert isinstance(told["delta_end"], float)
    assert told["target"]["label"] == told["prediction"]["answer"]


def test_a_span_of_the_context(served: Load) -> None:
    target = {"start": 0, "end": 10}
    _, told = why(served("question_answering"), QUESTION, target=target)
    assert told["target"]["label"] == "Nina Vogel"


def test_the_window_that_holds_the_span_is_explained(served: Load) -> None:
    context = "Ada lives in Paris. " * 30 + "Nina sings."
    target = {"start": len(context) - 11, "end": len(context) - 7}
    question = {"question": "Who sings?", "context": context}
    status, told = why(
        served("question_answering"), question, target=target, max_seq_len=48, doc_stride=8
    )
    assert status == 200
    assert told["target"]["label"] == "Nina"
    assert len(told["words"]) <= 48


def test_each_produced_token_is_explained(served: Load) -> None:
    _, told = why(served("text_generation"), "Once upon a time", max_new_tokens=3)
    assert len(told["tokens"]) == 3
    for token in told["tokens"]:
        assert len(token["importances"]) == len(told["words"])
    produced = "".join(token["token"] for token in told["tokens"])
    assert told["prediction"]["generated_text"] == "Once upon a time" + produced


def test_a_text_that_the_model_did_not_produce(served: Load) -> None:
    _, told = why(served("text_generation"), "Once upon", target=" a time")
    assert told["target"]["label"] == " a time"
    assert told["target"]["score"] < 1


def test_tokens_that_are_half_a_character(served: Load) -> None:
    """Bytes that are no text by themselves are explained like any other token."""
    for size in (1, 2, 3, 5):
        status, told = why(served("text_generation"), "Once upon", max_new_tokens=size)
        assert status == 200, told
        assert len(told["tokens"]) == size


def test_words_instead_of_tokens(served: Load) -> None:
    text = "Unbelievable singers were singing."
    _, tokens = why(served("sequence_classification"), text, method="input_x_gradient")
    _, words = why(
        served("sequence_classification"), text, method="input_x_gradient", granularity="word"
    )
    assert words["words"] == ["[CLS]", "Unbelievable", "singers", "were", "singing", ".", "[SEP]"]
    assert len(tokens["words"]) > len(words["words"])
    assert sum(words["attributions"]) == pytest.approx(sum(tokens["attributions"]), rel=1e-4)
    for (start, end), word in zip(words["offsets"], words["words"], strict=True):
        assert text[start:end] == word or word.startswith("[")


def test_a_row_that_does_not_finish_in_time_says_what_to_lower(served: Load) -> None:
    hurried = served("sequence_classification", explain_timeout=0.001)
    status, told = why(hurried, "A fine film.", n_steps=1000)
    assert status == 422
    assert "lower n_steps" in told["message"]
    assert hurried.ask("A fine film.")


def test_a_model_whose_yaml_says_no_is_not_explained(served: Load) -> None:
    status, told = why(served("sequence_classification", captum_explanation=False), "A fine film.")
    assert status == 422
    assert "captum_explanation" in told["message"]
