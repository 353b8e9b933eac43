"""The time for explanations is divided among the requests of a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hf_serve.handlers.errors import DeadlineExceeded, Unprocessable
from hf_serve.handlers.explainers.base import AttributionBatch
from hf_serve.handlers.explainers.layer_integrated_gradients import Explainer
from hf_serve.handlers.explainers.runner import TimeShares, weights_of
from hf_serve.handlers.process.deadline import Deadline
from hf_serve.handlers.types.request import Request
from tests.clock import Clock
from tests.sentences import Sentence
from tests.serving import Served

TEXT = "Nina sings in the old bar near the river"
CHEAP = {"method": "input_x_gradient"}
MANY = {"method": "kernel_shap", "n_samples": 10_000}
CHEAPER = "send a shorter text"
SECONDS = 60  # the default of explain_timeout


@pytest.fixture
def slow(served: Callable[..., Served], monkeypatch: pytest.MonkeyPatch) -> Any:
    """An engine, and a function that explains while each pass takes a second: `slow(mode)`."""

    def load(mode: str, **handler: Any) -> Callable[..., Any]:
        engine, clock = served(mode, **handler).engine, Clock()
        forward = engine.model.forward_with_gradients

        def slowly(batch: Any) -> Any:
            clock.now += 1
            return forward(batch)

        monkeypatch.setattr(engine.model, "forward_with_gradients", slowly)

        def explain(*requests: Request, owners: Any = None) -> Any:
            clock.now = 0
            outcomes = engine.explain(requests, None, Deadline(1000, clock), owners)
            assert clock.now <= SECONDS + 2
            return outcomes

        return explain

    return load


@pytest.mark.parametrize("mode", ["sequence_classification", "text_generation"])
def test_an_expensive_request_does_not_take_the_time_of_cheap_ones(slow: Any, mode: str) -> None:
    parameters = {"max_new_tokens": 2} if mode == "text_generation" else {}
    cheap, many = ({**settings, **parameters} for settings in (CHEAP, MANY))
    expensive, *others = slow(mode)(Request(TEXT, many), Request(TEXT, cheap), Request(TEXT, cheap))
    assert isinstance(expensive, DeadlineExceeded)
    assert str(expensive) == Sentence("kernel_shap", "explain_timeout", 60, "n_steps")
    assert all(isinstance(each, dict) for each in others)


@pytest.mark.parametrize("mode", ["sequence_classification", "text_generation"])
def test_a_request_of_many_items_has_the_same_time_as_one_of_one_item(slow: Any, mode: str) -> None:
    settings = {"method": "feature_ablation"}
    parameters = {"max_new_tokens": 2} if mode == "text_generation" else {}
    item = Request(TEXT, {**settings, **parameters})
    last = Request(f"{TEXT} in Paris", {**settings, **parameters})
    explain = slow(mode, max_batch_tokens=16)
    *many, single = explain(*[item] * 20, last, owners=[0] * 20 + [1])
    assert isinstance(single, dict), single
    assert sum(isinstance(each, DeadlineExceeded) for each in many) >= 10


def test_a_request_that_is_too_expensive_for_the_whole_time_is_not_possible(slow: Any) -> None:
    (outcome,) = slow("sequence_classification", max_batch_tokens=16)(Request(TEXT, MANY))
    assert isinstance(outcome, Unprocessable)
    assert str(outcome) == Sentence("kernel_shap", "explain_timeout", 60, "n_steps")


def test_requests_that_share_passes_run_alone_when_one_takes_too_long(
    slow: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    attribute = Explainer.attribute

    def too_long(self: Explainer, batch: AttributionBatch, settings: Any) -> Any:
        segments = [segment for target in batch.targets for segment in target.segments]
        while any(segment.text == "slow" for segment in segments):
            batch.scores()
        return attribute(self, batch, settings)

    monkeypatch.setattr(Explainer, "attribute", too_long)
    given = {"n_steps": 2, "granularity": "word"}
    requests = [Request(f"the film was {word}", given) for word in ("slow", "fine", "dull")]
    first, *others = slow("sequence_classification")(*requests)
    assert isinstance(first, DeadlineExceeded)
    assert all(isinstance(each, dict) for each in others)


def test_time_that_is_not_used_is_left_for_later_items() -> None:
    clock = Clock()
    shares = TimeShares(Deadline(60, clock), [1.0] * 3, CHEAPER)
    assert shares.take([1.0]).seconds == 20
    clock.now = 2
    assert shares.take([1.0]).seconds == 29
    clock.now = 4
    assert shares.take([1.0]).seconds == 56


def test_the_items_of_one_request_divide_its_share() -> None:
    weights = weights_of([0, 1, 1, 1, 1])
    assert weights == [1, 0.25, 0.25, 0.25, 0.25]
    shares = TimeShares(Deadline(60, Clock()), weights, CHEAPER)
    assert shares.take([0.25]).seconds == 7.5
