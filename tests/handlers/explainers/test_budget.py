"""Explanations compute no more tokens in one pass than predictions may."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from handlers.config.choices import module_names
from handlers.schemas.request import Request
from tests.samples import explained_modes, inputs_of
from tests.serving import Served

BUDGET = 48
TEXT = "Nina sings in the old bar near the river"


@pytest.mark.parametrize("mode", explained_modes())
@pytest.mark.parametrize("method", module_names("explainers"))
def test_no_pass_has_more_tokens_than_the_budget(
    served: Callable[..., Served], mode: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, sizes = served(mode, max_batch_tokens=BUDGET).engine, list[int]()
    forward = engine.model.forward_with_gradients

    def recorded(batch: Mapping[str, Any]) -> Any:
        sizes.append(batch["input_ids"].numel())
        return forward(batch)

    monkeypatch.setattr(engine.model, "forward_with_gradients", recorded)
    # Adaptive integration bisects where a text is far from its baseline.
    texts = [TEXT, f"{TEXT} in Paris", f"{TEXT} today", "A fine old film"]
    parameters = {"method": method, **({"n_samples": 20} if "sha" in method else {})}
    outcomes = engine.explain([Request(inputs_of(mode, text), parameters) for text in texts])
    assert all(isinstance(each, dict) for each in outcomes), outcomes
    assert max(sizes) <= BUDGET
