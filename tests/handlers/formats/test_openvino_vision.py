"""Which vision language models openvino-genai runs, and with which keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoModelForImageTextToText

from hf_serve.handlers import formats
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.errors import WrongCheckpoint, WrongConfig
from tests import tiny_multimodal
from tests.sentences import refused

pytestmark = pytest.mark.openvino

MODE = "image_text_to_text"


def config(continuous: bool = True, **handler: Any) -> ModelConfig:
    keys = {"mode": MODE, "save_mode": "openvino", "dtype": "float32", **handler}
    return ModelConfig.parse({"continuousBatching": continuous, "handler": keys})


def test_a_decoder_with_positions_of_images_is_refused_before_it_is_exported(
    tmp_path: Path,
) -> None:
    tiny_multimodal.write_qwen2_vl(tmp_path, {}, 1)
    target = tmp_path / "export"
    target.mkdir()
    with refused(WrongCheckpoint, "config.json", "qwen2_vl", "3 axes", "save_mode: pretrained"):
        formats.export(tmp_path, config(), target)
    assert not list(target.iterdir())


def test_another_order_or_another_input_of_the_decoder_is_named(tmp_path: Path) -> None:
    from hf_serve.handlers.formats import openvino_vision as vision  # noqa: PLC0415

    tiny_multimodal.write_llava(tmp_path, {}, 1)
    module = AutoModelForImageTextToText.from_pretrained(tmp_path).eval()
    spec = _spec(tmp_path)
    batches = vision.examples(spec)
    vision.check_decoder(module, batches)
    decoder: Any = module.get_decoder()

    def told(name: str, value: Any) -> None:
        decoder.register_forward_pre_hook(
            lambda _, inputs, named: (inputs, {**named, name: value}),
            with_kwargs=True,
            prepend=True,
        )

    told("position_ids", batches[0]["input_ids"] * 0 + 1)
    with refused(WrongCheckpoint, "llava", "positions"):
        vision.check_decoder(module, batches[:1])
    told("visual_pos_masks", batches[0]["attention_mask"])
    with refused(WrongCheckpoint, "llava", "visual_pos_masks"):
        vision.check_decoder(module, batches[:1])


def _spec(folder: Path) -> Any:
    from hf_serve.handlers.export.exporter import specify  # noqa: PLC0415

    return specify(folder, config())[1]


def test_keys_that_its_texts_do_not_have_are_refused() -> None:
    with refused(WrongConfig, MODE, "openvino", "continuousBatching: true"):
        formats.check_config(config(continuous=False))
    with refused(WrongConfig, "enable_prefix_caching", MODE):
        formats.check_config(config(enable_prefix_caching=True))
    formats.check_config(config())
