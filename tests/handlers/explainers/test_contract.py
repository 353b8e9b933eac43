"""The contract of every explanation method, for every format that it can explain."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from hf_serve.handlers import explainers
from hf_serve.handlers.config.handler_section import save_modes
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.explainers.bases.text import TokenBatch
from hf_serve.handlers.formats import export
from hf_serve.handlers.types.request import Request
from tests import decisive, tiny
from tests.samples import keys_of
from tests.serving import Served, explanation_of

METHODS = explainers.methods_for(TokenBatch, gradients=True)
FORWARD_ONLY = explainers.methods_for(TokenBatch, gradients=False)
TEXT = "the music in the bar is lovely today"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return decisive.write(tmp_path_factory.mktemp("decisive"))


@pytest.fixture(scope="module")
def served(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    @cache
    def load(save_mode: str) -> Served:
        if save_mode == "pretrained":
            return Served(checkpoint, "sequence_classification")
        target = tmp_path_factory.mktemp(save_mode)
        handler = {"mode": "sequence_classification", **keys_of(save_mode)}
        samples = [Request(TEXT)] * 2
        export(checkpoint, ModelConfig.parse({"handler": handler}), target, samples)
        for path in checkpoint.glob("*.json"):
            (target / path.name).write_bytes(path.read_bytes())
        return Served(target, **handler)

    return load


def exported_params() -> list[Any]:
    """Return the exported formats; all are slow except one of free and one of fixed shapes."""
    quick = ("torchscript", "neuron")
    marks = {name: [] if name in quick else [pytest.mark.nightly] for name in save_modes()}
    marks["openvino"].append(pytest.mark.openvino)
    return [pytest.param(name, marks=marks[name]) for name in marks if name != "pretrained"]


def explain(served: Served, inputs: Any, **parameters: Any) -> dict[str, Any]:
    body = explanation_of({"inputs": inputs, "parameters": parameters})
    ((status, explanation),) = served.post(body)
    assert status == 200, explanation
    return dict(explanation)


def top_word(explanation: dict[str, Any]) -> str:
    most = max(
        range(len(explanation["words"])), key=lambda number: explanation["importances"][number]
    )
    return str(explanation["words"][most])


@pytest.mark.parametrize("method", METHODS)
def test_the_decisive_word_has_the_highest_importance(served: Any, method: str) -> None:
    explanation = explain(served("pretrained"), TEXT, method=method, granularity="word")
    assert explanation["prediction"]["label"] == "POSITIVE"
    assert top_word(explanation) == decisive.WORD
    assert explanation["method"] == method


@pytest.mark.parametrize("method", FORWARD_ONLY)
@pytest.mark.parametrize("save_mode", exported_params())
def test_formats_without_gradients_have_the_same_top_word(
    served: Any, save_mode: str, method: str
) -> None:
    exported = explain(served(save_mode), TEXT, method=method, granularity="word")
    checkpoint = explain(served("pretrained"), TEXT, method=method, granularity="word")
    assert top_word(exported) == top_word(checkpoint) == decisive.WORD


def test_a_method_that_needs_gradients_is_refused_without_gradients(served: Any) -> None:
    body = {"inputs": TEXT, "parameters": {"method": "layer_integrated_gradients"}}
    ((status, explanation),) = served("torchscript").post(explanation_of(body))
    assert status == 422
    assert "feature_ablation" in explanation["message"]
    assert explain(served("torchscript"), TEXT)["method"] == "feature_ablation"


@pytest.mark.parametrize("method", METHODS)
def test_attributions_of_complete_methods_sum_to_the_difference_of_outputs(
    served: Any, method: str
) -> None:
    explanation = explain(served("pretrained"), TEXT, method=method)
    difference = explanation["output"] - explanation["baseline_output"]
    error = sum(explanation["attributions"]) - difference
    assert explanation["convergence_delta"] == pytest.approx(error)
    if explainers.get(method).complete:
        assert abs(error) <= 0.05 * abs(difference)
        assert explanation["converged"]
    else:
        assert explanation["converged"] is None


@pytest.mark.parametrize("method", METHODS)
def test_a_batch_gets_the_explanations_of_single_requests(served: Any, method: str) -> None:
    texts = [TEXT, "a nice walk", f"{decisive.WORD} weather", "it is nice in the park today"]
    bodies = [{"inputs": text, "parameters": {"method": method}} for text in texts]
    together = served("pretrained").post(*map(explanation_of, bodies))
    for body, (status, explanation) in zip(bodies, together, strict=True):
        ((_, alone),) = served("pretrained").post(explanation_of(body))
        assert status == 200
        assert explanation["words"] == alone["words"]
        assert explanation["attributions"] == pytest.approx(alone["attributions"], abs=2e-3)


@pytest.mark.parametrize("method", ["shapley_value_sampling", "kernel_shap"])
def test_what_is_drawn_for_a_text_does_not_depend_on_the_others(
    tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With few samples, other permutations and subsets give other attributions."""
    model = Served(tiny.write(tmp_path, "sequence_classification"), "sequence_classification")
    monkeypatch.setattr("hf_serve.handlers.explainers.bases.text.MAX_PADDING_SHARE", 0.9)
    parameters = {"method": method, "n_samples": 6}
    texts = ["nice", "a nice walk in the park", TEXT, f"{TEXT} and {TEXT}"]
    bodies: list[dict[str, Any]] = [{"inputs": each, "parameters": parameters} for each in texts]
    bodies.append({"inputs": TEXT, "parameters": {**parameters, "granularity": "word"}})
    together = model.post(*map(explanation_of, bodies))
    for body, (status, explanation) in zip(bodies, together, strict=True):
        ((_, alone),) = model.post(explanation_of(body))
        assert status == 200
        assert explanation["attributions"] == pytest.approx(alone["attributions"], abs=2e-3)


def test_few_steps_that_do_not_converge_come_with_a_warning(served: Any) -> None:
    explanation = explain(served("pretrained"), TEXT, n_steps=1)
    assert explanation["converged"] is False
    assert "n_steps" in explanation["warning"]


def test_importances_are_normalized_and_valid_json(served: Any) -> None:
    explanation = explain(served("pretrained"), TEXT)
    assert sum(value**2 for value in explanation["importances"]) == pytest.approx(1)
    json.dumps(explanation, allow_nan=False)
