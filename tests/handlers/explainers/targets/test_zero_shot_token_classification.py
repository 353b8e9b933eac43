"""Explanations of a span, compared with gradients and differences of the model itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hf_serve.handlers.batching.padding import pad
from hf_serve.handlers.batching.words import WORDS
from hf_serve.handlers.types.request import Request
from tests import tiny_gliner
from tests.serving import Served, explanation_of
from tests.tiny_gliner import DEBERTA, Kind

MODE = "zero_shot_token_classification"
TEXT = "Nina Vogel sings in Paris."
LABELS = ["person", "city"]
SPAN = {"start": 0, "end": 10, "label": "city"}
# Positions are added to the vectors of tokens, so that the gradient along these is not 0.
BIASED = {**DEBERTA, "position_biased_input": True}


@pytest.fixture(scope="module", params=["markerV0", "token_level"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Served:
    kind = Kind("DebertaV2", {"hidden_size": 24, "span_mode": request.param}, BIASED)
    return Served(tiny_gliner.write(tmp_path_factory.mktemp("gliner") / "model", kind), MODE)


def explain(model: Served, text: str = TEXT, **parameters: Any) -> tuple[int, Any]:
    body = {"inputs": text, "parameters": {"labels": LABELS, "threshold": 0.2, **parameters}}
    ((status, response),) = model.post(explanation_of(body))
    return status, response


def logits(model: Served) -> tuple[Any, Any, torch.Tensor, torch.Tensor]:
    """Return the row, its batch, the vectors of its tokens and its logits, which have gradients."""
    task: Any = model.engine.task
    ((row,),) = task.encode([task.parse(Request(TEXT, {"labels": LABELS}))])
    batch = pad([row], task.padding)
    module: Any = model.engine.model
    layer = module.module.get_input_embeddings()
    vectors = layer(batch["input_ids"]).detach().requires_grad_()
    handle = layer.register_forward_hook(lambda *_: vectors)
    try:
        return row, batch, vectors, module.module(**batch)["logits"][0]
    finally:
        handle.remove()


def explained_logit(model: Served, row: Any, values: torch.Tensor) -> torch.Tensor:
    """Return the logit of "Nina Vogel" as a city: of two words, or of the least sure of them."""
    first, last = (row.features[WORDS].index(number) for number in (1, 2))
    if values.ndim == 4 or values.shape[-1] != 3:
        return values[first, 1, 1]
    parts = [values[first, 1, 0], values[last, 1, 1], values[first, 1, 2], values[last, 1, 2]]
    return min(parts, key=float)


def test_input_x_gradient_is_the_gradient_of_the_logit_of_the_span(model: Served) -> None:
    row, _, vectors, values = logits(model)
    logit = explained_logit(model, row, values)
    logit.backward()
    assert vectors.grad is not None
    expected = (vectors * vectors.grad).sum(-1)[0].detach().numpy()
    inside = np.array(row.encoding.special_tokens_mask) == 0
    status, found = explain(model, target=SPAN, method="input_x_gradient")
    assert status == 200, found
    assert found["output"] == pytest.approx(float(logit), abs=1e-4)
    assert np.abs(expected[inside]).max() > 1e-4
    np.testing.assert_allclose(np.array(found["attributions"])[inside], expected[inside], atol=1e-5)


def test_feature_ablation_is_the_difference_that_a_word_makes(model: Served) -> None:
    status, found = explain(model, target=SPAN, method="feature_ablation", granularity="word")
    assert status == 200, found
    row, batch, _, values = logits(model)
    whole = float(explained_logit(model, row, values))
    task: Any = model.engine.task
    module: Any = model.engine.model
    place = found["words"].index("sings")
    without = batch["input_ids"].clone()
    slots = [slot for slot, word in enumerate(row.encoding.word_ids) if word == 2]
    without[0, slots] = task.checkpoint.baseline_token_id
    changed = module.module(**{**batch, "input_ids": without})["logits"][0]
    if changed.shape[-1] == 3 and changed.ndim == 3:
        values = values.detach()
        first, last = (row.features[WORDS].index(number) for number in (1, 2))
        places = [(first, 1, 0), (last, 1, 1), (first, 1, 2), (last, 1, 2)]
        least = min(places, key=lambda each: float(values[each]))
        difference = whole - float(changed[least])
    else:
        difference = whole - float(explained_logit(model, row, changed))
    assert found["attributions"][place] == pytest.approx(difference, abs=1e-4)


def test_integrated_gradients_sum_to_the_logit_of_the_span(model: Served) -> None:
    status, found = explain(model, target=SPAN, granularity="word", n_steps=200)
    assert status == 200, found
    assert found["method"] == "layer_integrated_gradients"
    difference = found["output"] - found["baseline_output"]
    assert sum(found["attributions"]) == pytest.approx(difference, rel=0.05, abs=0.01)
    assert found["target"] == {**SPAN, "index": 1, "score": pytest.approx(0.5, abs=0.5)}


def test_the_default_target_is_the_surest_entity(model: Served) -> None:
    answer = model.ask(TEXT, labels=LABELS, threshold=0.0)
    surest = max(answer, key=lambda each: each["score"])
    status, found = explain(model, method="input_x_gradient", threshold=0.0)
    assert status == 200
    for part in (found["prediction"], found["target"]):
        assert (part["start"], part["end"]) == (surest["start"], surest["end"])
        assert (part["label"], part["score"]) == (surest["entity_group"], surest["score"])


def test_without_an_entity_the_best_word_is_explained(model: Served) -> None:
    status, found = explain(model, method="input_x_gradient", threshold=1.0)
    assert status == 200
    assert found["prediction"] is None
    assert found["target"]["label"] in LABELS


@pytest.mark.parametrize(
    ("target", "part"),
    [
        (99, "target must be a number"),
        ("person", "target must be a number"),
        ({"start": 0}, "target has no end"),
        ({"start": 0, "end": 999}, "target's end"),
        ({"start": 4, "end": 5}, "hold no word"),
        ({"start": 0, "end": 10, "label": "film"}, "'film'"),
    ],
)
def test_an_unknown_span_is_a_bad_request(model: Served, target: Any, part: str) -> None:
    status, found = explain(model, target=target, threshold=0.0)
    assert (status, part in found["message"]) == (400, True), found


def test_a_span_in_a_later_window_is_explained_there(
    served: Callable[..., Served], tmp_path: Path
) -> None:
    kind = Kind("DebertaV2", {"hidden_size": 24, "max_len": 8}, DEBERTA)
    model = Served(tiny_gliner.write(tmp_path / "model", kind), MODE)
    text = f"{TEXT} {TEXT} {TEXT}"
    start = text.rindex("Paris")
    target = {"start": start, "end": start + 5, "label": "city"}
    status, found = explain(model, text, target=target, method="feature_ablation")
    assert status == 200, found
    offsets = [
        pair
        for pair, special in zip(found["offsets"], found["sequence_ids"], strict=True)
        if special is not None
    ]
    assert min(offset[0] for offset in offsets) > 26
    assert found["words"]
