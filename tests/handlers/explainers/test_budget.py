"""Explanations compute no more tokens or pixels in one pass than predictions may."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from hf_serve.handlers.explainers import methods_for, targets
from hf_serve.handlers.types.request import Request
from tests.modes import representatives
from tests.samples import explained_modes, explained_text_modes, inputs_of
from tests.serving import Served

TOKENS, PIXELS = 48, 4 * 32 * 32
TEXT = "Nina sings in the old bar near the river"


def explained_by() -> list[Any]:
    """Return every mode with every method that explains it; most modes are nightly."""
    few = representatives()
    return [
        pytest.param(mode, method, marks=() if mode in few else pytest.mark.nightly)
        for mode in explained_modes()
        if (target := targets.get(mode))
        for method in methods_for(target.model_type.batch_type, gradients=True)
    ]


@pytest.mark.parametrize(("mode", "method"), explained_by())
def test_no_pass_has_more_than_the_budget(
    served: Callable[..., Served], mode: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads_text = mode in explained_text_modes()
    budget = TOKENS if reads_text else PIXELS
    engine = served(mode, **{f"max_batch_{'tokens' if reads_text else 'pixels'}": budget}).engine
    sizes, forward = list[int](), engine.model.forward_with_gradients
    # Where images are rows, too, a token costs some pixels.
    token_cost = getattr(engine.task, "token_cost", 1)

    def recorded(batch: Mapping[str, Any]) -> Any:
        whole = batch["pixel_values"][:, 0] if "pixel_values" in batch else batch["input_ids"]
        sizes.append(whole.numel() * (token_cost if "input_ids" in batch else 1))
        return forward(batch)

    monkeypatch.setattr(engine.model, "forward_with_gradients", recorded)
    # Adaptive integration bisects where a text is far from its baseline.
    texts = [TEXT, f"{TEXT} in Paris", "A fine old film"]
    parameters = {} if reads_text else {"resolution": 3}
    parameters |= {"n_samples": 5} if "sha" in method else {}
    settings = {"method": method, **parameters}
    outcomes = engine.explain([Request(inputs_of(mode, text), settings) for text in texts])
    assert all(isinstance(each, dict) for each in outcomes), outcomes
    assert max(sizes) <= budget
