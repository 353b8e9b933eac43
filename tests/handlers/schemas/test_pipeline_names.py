"""What callers of transformers' pipelines set, as they set it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from handlers import tasks
from handlers.config.choices import modes
from tests.samples import FINE, requests_of
from tests.serving import Served, explanation_of

Load = Callable[..., Served]
CLASSES, TOKENS, GENERATION = "sequence_classification", "token_classification", "text_generation"


@pytest.mark.parametrize("mode", modes())
@pytest.mark.parametrize("given", [{"padding": True}, {"padding": "max_length", "batch_size": 8}])
def test_what_changes_nothing_is_left(served: Load, mode: str, given: Any) -> None:
    model = served(mode)
    inputs, parameters = requests_of(mode)[0]
    assert model.ask(inputs, **parameters, **given) == model.ask(inputs, **parameters)


@pytest.mark.parametrize("mode", modes())
def test_what_changes_nothing_is_no_parameter_that_is_told(mode: str) -> None:
    parameters = tasks.get(mode).parameters
    names = parameters.pipeline_names
    assert names.ignored and not {*names.ignored, *names.switches} & parameters.model_fields.keys()


@pytest.mark.parametrize(
    ("mode", "given", "meant"),
    [
        (CLASSES, {"truncation": True}, {}),
        (CLASSES, {"return_all_scores": True}, {"top_k": None}),
        (CLASSES, {"return_all_scores": True, "top_k": 2}, {"top_k": 2}),
        (CLASSES, {"return_all_scores": False}, {}),
        (CLASSES, {"return_all_scores": None}, {}),
        (CLASSES, {"function_to_apply": "SIGMOID"}, {"function_to_apply": "sigmoid"}),
        (TOKENS, {"grouped_entities": True}, {"aggregation_strategy": "simple"}),
        (TOKENS, {"grouped_entities": False}, {}),
        (TOKENS, {"aggregation_strategy": "MAX"}, {"aggregation_strategy": "max"}),
    ],
)
def test_an_old_name_means_a_parameter(served: Load, mode: str, given: Any, meant: Any) -> None:
    model = served(mode)
    assert model.ask(FINE, **given) == model.ask(FINE, **meant)


@pytest.mark.parametrize(
    ("mode", "given", "status", "sentence"),
    [
        (CLASSES, {"truncation": False}, 422, "truncation cannot be done by this server; leave"),
        (CLASSES, {"return_all_scores": 1}, 400, "parameters: return_all_scores must be true or"),
        (CLASSES, {"function_to_apply": "SIGMA"}, 400, "parameters: function_to_apply is 'sigma'"),
        (TOKENS, {"grouped_entities": "yes"}, 400, "parameters: grouped_entities must be true or"),
        (TOKENS, {"aggregation_strategy": 5}, 400, "parameters: aggregation_strategy is 5; it sh"),
        (GENERATION, {"eos_token_id": 5}, 422, "eos_token_id can only be this model's own, 0; us"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    served: Load, mode: str, given: Any, status: int, sentence: str
) -> None:
    found, told = served(mode).refuse(FINE, **given)
    assert (found, told[: len(sentence)]) == (status, sentence)


def test_a_text_is_cut_at_the_length_that_is_asked_for(served: Load) -> None:
    model, pair = served(CLASSES), {"text": FINE, "text_pair": FINE}
    assert model.ask("A fine film", max_length=4) == model.ask("A fine")
    assert model.ask("A fine film", max_length=400) == model.ask("A fine film")
    assert model.ask(pair, max_length=6) != model.ask(pair)
    post = explanation_of({"inputs": "A fine film", "parameters": {"max_length": 4}})
    ((_, told),) = model.post(post)
    assert told["words"] == ["[CLS]", "a", "fine", "[SEP]"]


@pytest.mark.parametrize(("inputs", "special"), [("A", 2), ({"text": "A", "text_pair": "B"}, 3)])
def test_a_length_without_room_for_the_text_is_refused(
    served: Load, inputs: Any, special: int
) -> None:
    status, told = served(CLASSES).refuse(inputs, max_length=special)
    assert (status, f"and {special} tokens of a row are special ones" in told) == (400, True)


def test_a_length_of_prompt_and_text_together(served: Load) -> None:
    model = served(GENERATION)
    ((alone,), (same,)) = (
        model.ask("Ada", max_new_tokens=4, details=True),
        model.ask("Ada", max_new_tokens=4, max_length=1, details=True),
    )
    assert alone == same
    length = alone["details"]["input_length"]
    (whole,) = model.ask("Ada", max_length=length + 4, details=True)
    assert whole == alone
    status, told = model.refuse("Ada", max_length=length)
    assert (status, f"and max_length is {length}" in told) == (413, True)


def test_an_end_that_is_the_models_own_says_nothing_new(served: Load) -> None:
    model = served(GENERATION)
    assert (
        model.ask("Ada", eos_token_id=0) == model.ask("Ada", eos_token_id=[0]) == model.ask("Ada")
    )
