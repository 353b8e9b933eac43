"""The formats that a model can have on a machine."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.scripts.benchmark.candidates import Candidate, candidates


def config_of(**handler: Any) -> ModelConfig:
    return ModelConfig.parse({"handler": {"mode": "sequence_classification", **handler}})


def possible(config: ModelConfig) -> list[Candidate]:
    return [each for each in candidates(config) if each.problem is None]


def test_the_checkpoint_in_float32_comes_first() -> None:
    first = candidates(config_of(save_mode="onnx", quantization=None))[0]
    assert first.keys == {"save_mode": "pretrained", "dtype": "float32"}


def test_each_format_has_the_other_keys_of_the_yaml() -> None:
    config = config_of(max_length=64, save_mode="auto", dtype="auto")
    for each in possible(config):
        made = ModelConfig.parse(each.config_of(config)).handler
        shown = yaml.safe_load(each.yaml)["handler"]
        assert made.max_length == 64
        assert shown == dict(each.keys) == {key: getattr(made, key) for key in shown}


@pytest.mark.openvino
def test_a_quantized_format_has_no_dtype_that_contradicts_it() -> None:
    quantized = [each for each in possible(config_of()) if "quantization" in each.keys]
    assert {each.keys["quantization"] for each in quantized} >= {"int8", "int8_weights"}
    assert {each.keys["dtype"] for each in quantized} == {"auto"}


def test_a_format_that_a_mode_does_not_have_says_why() -> None:
    found = {each.save_mode: each.problem for each in candidates(config_of(mode="text_generation"))}
    assert found["pretrained"] is None
    assert "text_generation" in (found["torchscript"] or "")


def test_a_key_that_excludes_a_format_says_so() -> None:
    found = candidates(config_of(device_map="auto"))
    assert "device_map" in next(each.problem or "" for each in found if each.save_mode == "onnx")
