"""The number of tokens in one forward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from hf_serve.handlers.telemetry.metrics import Meter
from hf_serve.handlers.types.request import Request
from tests.samples import FINE
from tests.serving import Served

Load = Callable[..., Served]


@pytest.fixture
def accelerated(served: Load, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Models that seem to run on an accelerator."""

    def load(mode: str, **handler: Any) -> Served:
        model = served(mode, **handler)
        capabilities = replace(model.engine.model.capabilities, on_accelerator=True)
        monkeypatch.setattr(model.engine.model, "capabilities", capabilities)
        return model

    return load


def forwards(served: Load, tokens: int, **handler: Any) -> int:
    """Return the number of forwards for rows of so many tokens in all."""
    engine = served("sequence_classification", **handler).engine
    one, meter = Meter(), Meter()
    engine.predict([Request(FINE)], one)
    engine.predict([Request(FINE)] * (tokens // one.counts["tokens"]), meter)
    return meter.counts["forwards"]


def test_a_cpu_runs_a_thousand_tokens_at_a_time(served: Load) -> None:
    assert forwards(served, 1000) == 1
    assert forwards(served, 4000) > 3


def test_an_accelerator_runs_four_thousand_tokens_at_a_time(accelerated: Load) -> None:
    assert forwards(accelerated, 4000) == 1
    assert forwards(accelerated, 8000) > 1
    assert forwards(accelerated, 32_000) <= 10


def test_the_yaml_says_how_many_tokens_an_accelerator_runs_at_a_time(accelerated: Load) -> None:
    assert forwards(accelerated, 4000, max_batch_tokens=1024) > 3
