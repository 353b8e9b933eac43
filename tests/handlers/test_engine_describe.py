"""The description of a model agrees with its behaviour."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from hf_serve.handlers.config.handler_section import modes
from hf_serve.handlers.types.model_info import ModelInfo
from tests.modes import cases
from tests.samples import INPUTS, PARAMETERS, mode_params
from tests.serving import Served

Load = Callable[..., Served]
every_mode = pytest.mark.parametrize("mode", mode_params(modes()))


def brief(served: Load, mode: str) -> Served:
    """Return a model whose default texts are short."""
    settings = cases(mode).settings
    return served(mode, **(settings if "max_new_tokens" in settings.get("parameters", {}) else {}))


def described(model: Served) -> ModelInfo:
    return model.engine.describe("m", "2.0")


@every_mode
def test_inputs_parameters_and_answers_fit_their_schemas(served: Load, mode: str) -> None:
    model = brief(served, mode)
    info = described(model)
    for inputs in INPUTS[mode]:
        jsonschema.validate(inputs, info.inputs)
    for given in PARAMETERS[mode]:
        for name, value in given.items():
            jsonschema.validate(value, info.parameters[name])
        jsonschema.validate(model.ask(INPUTS[mode][0], **given), info.results)


@every_mode
def test_the_sample_is_answered_and_every_described_default_may_be_sent(
    served: Load, mode: str
) -> None:
    model = brief(served, mode)
    info = described(model)
    defaults = {name: schema["default"] for name, schema in info.parameters.items()}
    sample = {**defaults, **info.task.wire.example.get("parameters", {})}
    ((status, answer),) = model.post(info.task.wire.example)
    assert (status, model.ask(info.task.wire.example["inputs"], **sample)) == (200, answer)


def test_a_single_stop_string_is_valid(served: Load) -> None:
    schema: Any = described(served("text_generation")).parameters["stop"]
    fits = jsonschema.Draft202012Validator(schema).is_valid
    assert all(map(fits, ("e", ["e", "a"], None)))
    assert not any(map(fits, ("", [""], 5)))


def test_the_defaults_of_the_yaml_are_described(checkpoint: Callable[..., Path]) -> None:
    mode = "sequence_classification"
    info = described(Served(checkpoint(mode), mode, parameters={"top_k": 2}, max_length=16))
    assert info.parameters["top_k"]["default"] == 2
    assert info.limits.max_length == 16
    assert info.labels == ["NEGATIVE", "NEUTRAL", "POSITIVE"]
    assert info.architecture == "BertForSequenceClassification"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_described_dtype_is_what_the_model_computes_in(
    checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    supported = dtype == "bfloat16"
    monkeypatch.setattr("hf_serve.handlers.checkpoints.dtypes.cpu_has_bfloat16", lambda: supported)
    mode = "sequence_classification"
    model = Served(checkpoint(mode), mode, dtype="auto")
    assert described(model).dtype == dtype


def test_only_methods_that_work_are_described(
    served: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = served("sequence_classification")
    method = described(model).explanation["method"]
    assert method["default"] == "layer_integrated_gradients" in method["enum"]
    monkeypatch.setattr(type(model.engine.model), "has_gradients", False)
    method = described(model).explanation["method"]
    assert method["default"] == "feature_ablation" in method["enum"]
    assert "input_x_gradient" not in method["enum"]


def test_a_model_that_is_not_explained_describes_no_explanation(served: Load) -> None:
    assert described(served("text_generation", captum_explanation=False)).explanation == {}
