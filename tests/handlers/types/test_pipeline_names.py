"""Parameters under the names that transformers' pipelines give them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hf_serve.handlers import tasks
from hf_serve.handlers.config.handler_section import modes
from tests.modes import each_mode
from tests.samples import FINE, requests_of, text_modes
from tests.sentences import Sentence
from tests.serving import Served, explanation_of

Load = Callable[..., Served]
CLASSES, TOKENS, GENERATION = "sequence_classification", "token_classification", "text_generation"


@pytest.mark.parametrize("mode", each_mode(text_modes()))
def test_parameters_without_effect_are_ignored(served: Load, mode: str) -> None:
    model = served(mode)
    inputs, parameters = requests_of(mode)[0]
    expected = model.ask(inputs, **parameters)
    for ignored in ({"padding": True}, {"padding": "max_length", "batch_size": 8}):
        assert model.ask(inputs, **parameters, **ignored) == expected


def test_parameters_without_effect_are_not_described() -> None:
    for mode in modes():
        parameters = tasks.get(mode).parameters
        names = parameters.pipeline_names
        assert names.ignored, mode
        described = {*names.ignored, *names.switches} & parameters.model_fields.keys()
        assert not described, f"{mode} describes {described}"


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
def test_old_parameter_names_are_translated(
    served: Load, mode: str, given: Any, meant: Any
) -> None:
    model = served(mode)
    assert model.ask(FINE, **given) == model.ask(FINE, **meant)


@pytest.mark.parametrize(
    ("mode", "given", "status", "facts"),
    [
        (CLASSES, {"truncation": False}, 422, ["truncation"]),
        (CLASSES, {"return_all_scores": 1}, 400, ["return_all_scores"]),
        (CLASSES, {"function_to_apply": "SIGMA"}, 400, ["sigma", "function_to_apply"]),
        (TOKENS, {"grouped_entities": "yes"}, 400, ["grouped_entities"]),
        (TOKENS, {"aggregation_strategy": 5}, 400, ["aggregation_strategy", "5"]),
        (GENERATION, {"eos_token_id": 9999}, 400, ["eos_token_id", 9999]),
    ],
)
def test_an_invalid_pipeline_parameter_is_refused(
    served: Load, mode: str, given: Any, status: int, facts: list[str]
) -> None:
    found, message = served(mode).refuse(FINE, **given)
    assert (found, message) == (status, Sentence(*facts))


def test_a_text_is_truncated_at_the_requested_length(served: Load) -> None:
    model, pair = served(CLASSES), {"text": FINE, "text_pair": FINE}
    assert model.ask("A fine film", max_length=4) == model.ask("A fine")
    assert model.ask("A fine film", max_length=400) == model.ask("A fine film")
    assert model.ask(pair, max_length=6) != model.ask(pair)
    http_request = explanation_of({"inputs": "A fine film", "parameters": {"max_length": 4}})
    ((_, explanation),) = model.post(http_request)
    assert explanation["words"] == ["[CLS]", "a", "fine", "[SEP]"]


@pytest.mark.parametrize(("inputs", "special"), [("A", 2), ({"text": "A", "text_pair": "B"}, 3)])
def test_a_length_that_leaves_no_tokens_for_the_text_is_refused(
    served: Load, inputs: Any, special: int
) -> None:
    status, message = served(CLASSES).refuse(inputs, max_length=special)
    assert (status, f"and {special} tokens of a row are special ones" in message) == (400, True)


def test_max_length_counts_prompt_and_new_text(served: Load) -> None:
    model = served(GENERATION)
    ((alone,), (same,)) = (
        model.ask("Ada", max_new_tokens=4, details=True),
        model.ask("Ada", max_new_tokens=4, max_length=1, details=True),
    )
    assert alone == same
    length = alone["details"]["input_length"]
    (whole,) = model.ask("Ada", max_length=length + 4, details=True)
    assert whole == alone
    status, message = model.refuse("Ada", max_length=length)
    assert (status, f"and max_length is {length}" in message) == (413, True)


def test_the_eos_token_of_the_model_changes_nothing(served: Load) -> None:
    model = served(GENERATION)
    assert (
        model.ask("Ada", eos_token_id=0) == model.ask("Ada", eos_token_id=[0]) == model.ask("Ada")
    )
