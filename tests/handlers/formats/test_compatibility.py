from __future__ import annotations

from typing import Any

import pytest

from hf_serve.handlers import formats, tasks
from hf_serve.handlers.config.handler_section import modes, save_modes
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.errors import WrongConfig
from hf_serve.handlers.formats import check_config
from hf_serve.handlers.formats.base import BaseFormat
from tests.samples import keys_of
from tests.sentences import refused

COMPILE = {"compile": {"enable": True, "backend": "inductor"}}


def read(save_mode: str, pt2: Any = None, **handler: Any) -> ModelConfig:
    keys = {"mode": "sequence_classification", **keys_of(save_mode), **handler}
    config = ModelConfig.parse({"handler": keys, "pt2": pt2 or {}})
    check_config(config)
    return config


@pytest.mark.parametrize("save_mode", save_modes())
def test_only_exported_formats_define_an_export(save_mode: str) -> None:
    exports = type(formats.get(save_mode)).export is not BaseFormat.export
    assert read(save_mode).handler.is_exported == exports


@pytest.mark.parametrize("save_mode", ["torch_export", "onnx", "openvino"])
def test_a_graph_for_any_number_of_rows_has_no_batch_size(save_mode: str) -> None:
    with refused(WrongConfig, "handler.batch_size", 4, "handler.save_mode", save_mode):
        read(save_mode, batch_size=4)


@pytest.mark.parametrize("save_mode", ["torch_export", "onnx", "openvino", "neuron", "neuronx"])
def test_a_graph_that_torch_does_not_run_is_not_compiled(save_mode: str) -> None:
    assert read(save_mode, {"compile": {"enable": False, "backend": "inductor"}})
    for pt2 in (COMPILE, "inductor"):
        with refused(WrongConfig, "pt2.compile", save_mode):
            read(save_mode, pt2)


@pytest.mark.parametrize("save_mode", ["pretrained", "torchscript"])
def test_formats_of_the_old_example_accept_its_keys(save_mode: str) -> None:
    assert read(save_mode, COMPILE, batch_size="1").handler.save_mode == save_mode


@pytest.mark.parametrize(
    "mode", [mode for mode in modes() if not tasks.get(mode).description.exports.supported]
)
@pytest.mark.parametrize("save_mode", [name for name in save_modes() if name != "pretrained"])
def test_a_mode_that_is_not_exported_refuses_other_formats_by_name(
    mode: str, save_mode: str
) -> None:
    with refused(
        WrongConfig, "handler.mode", mode, "handler.save_mode", save_mode, "save_mode: pretrained"
    ):
        read(save_mode, mode=mode)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_format_of_float32_refuses_another_dtype(dtype: str) -> None:
    with refused(
        WrongConfig, "handler.dtype", dtype, "handler.save_mode", "onnx", "save_mode: pretrained"
    ):
        read("onnx", dtype=dtype)
    assert read("openvino", dtype=dtype).handler.dtype == dtype


@pytest.mark.parametrize("dtype", ["float32", "auto"])
def test_a_format_of_float32_accepts_float32_and_auto(dtype: str) -> None:
    assert read("onnx", dtype=dtype).handler.dtype == dtype


@pytest.mark.parametrize("mode", modes())
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "auto"])
def test_pretrained_supports_every_mode_and_dtype(mode: str, dtype: str) -> None:
    config = ModelConfig.parse(
        {"handler": {"mode": mode, "dtype": dtype, "batch_size": 4}, "pt2": COMPILE}
    )
    formats.get("pretrained").check(config, tasks.get(mode))


@pytest.mark.parametrize("save_mode", save_modes())
def test_every_required_package_has_an_install_command(save_mode: str) -> None:
    assert all("pip install" in how for how in formats.get(save_mode).packages.values())


@pytest.mark.parametrize(
    ("keys", "more", "obstacle"),
    [
        ({"save_mode": "openvino"}, {}, ["handler.save_mode", "openvino"]),
        ({"mode": "fill_mask"}, {}, ["handler.mode", "fill_mask"]),
        ({}, {"pt2": COMPILE}, ["pt2.compile"]),
    ],
)
def test_adapters_need_a_model_that_chooses_them_for_each_request(
    keys: Any, more: Any, obstacle: list[str]
) -> None:
    handler = {"mode": "text_generation", "adapters": {"french": "org/name"}}
    check_config(ModelConfig.parse({"handler": handler}))
    with refused(WrongConfig, "handler.adapters", *obstacle):
        check_config(ModelConfig.parse({"handler": {**handler, **keys}, **more}))


@pytest.mark.parametrize(
    ("keys", "obstacle"),
    [
        ({"continuousBatching": False}, ["enable_chunked_prefill", "continuousBatching"]),
        ({"mode": "summarization"}, ["enable_chunked_prefill", "handler.mode", "summarization"]),
        ({"enable_chunked_prefill": False}, ["max_num_batched_tokens", "enable_chunked_prefill"]),
        (
            {"enable_chunked_prefill": False, "save_mode": "pretrained"},
            ["enable_chunked_prefill", "save_mode", "pretrained"],
        ),
    ],
)
def test_how_prompts_are_read_is_a_setting_of_what_runs_texts_side_by_side(
    keys: dict[str, Any], obstacle: list[str]
) -> None:
    base = {
        "mode": "text_generation",
        "save_mode": "openvino",
        "enable_chunked_prefill": True,
        "max_num_batched_tokens": 128,
    }

    def check(continuousBatching: bool = True, **handler: Any) -> None:  # noqa: N803
        keys = {"continuousBatching": continuousBatching, "handler": {**base, **handler}}
        check_config(ModelConfig.parse(keys))

    check()
    check(save_mode="pretrained", enable_prefix_caching=True)
    check(save_mode="pretrained", engine="vllm", enable_prefix_caching=False)
    changed = {"save_mode": "pretrained"} if keys.get("mode") else {}
    with refused(WrongConfig, *obstacle):
        check(**{**changed, **keys})
