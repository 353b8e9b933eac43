from __future__ import annotations

import pytest
from transformers import (
    AutoModelForTextEncoding,
    BertConfig,
    BertForMaskedLM,
    ByT5Tokenizer,
    FunnelConfig,
    IdeficsConfig,
    T5Config,
)

from handlers.compat.transformers import auto_classes


@pytest.mark.parametrize(
    ("auto_class", "config", "names"),
    [
        ("AutoModelForMaskedLM", BertConfig(), ["BertForMaskedLM"]),
        ("AutoModel", FunnelConfig(), ["FunnelModel", "FunnelBaseModel"]),
        ("AutoModelForCausalLM", T5Config(), []),
    ],
)
def test_an_auto_class_has_the_classes_of_a_config(
    auto_class: str, config: BertConfig, names: list[str]
) -> None:
    found = auto_classes.model_classes(auto_class, config)
    assert [each.__name__ for each in found] == names


def test_the_heads_of_model_types_are_known() -> None:
    assert BertForMaskedLM in auto_classes.model_classes("AutoModelForMaskedLM", BertConfig())
    assert auto_classes.has_masked_head("bert") and not auto_classes.has_masked_head("gpt2")
    assert auto_classes.has_causal_head("gpt2") and not auto_classes.has_causal_head("t5")
    assert auto_classes.has_ctc_head("wav2vec2") and not auto_classes.has_ctc_head("whisper")
    assert auto_classes.has_universal_segmentation_head("mask2former")
    assert not auto_classes.has_universal_segmentation_head("segformer")


def test_a_text_encoder_is_that_of_its_auto_class() -> None:
    name = auto_classes.text_encoder_class("t5")
    assert name == AutoModelForTextEncoding.from_config(_small_t5()).__class__.__name__
    assert auto_classes.is_text_encoder_class(name)
    assert auto_classes.text_encoder_class("gpt2") == ""
    assert not auto_classes.is_text_encoder_class("T5Model")


def _small_t5() -> T5Config:
    return T5Config(vocab_size=8, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2)


def test_processors_are_those_of_configs() -> None:
    kind = auto_classes.processor_class(IdeficsConfig())
    assert kind is not None
    assert kind.__name__ == "IdeficsProcessor"
    assert auto_classes.processor_class(BertConfig()) is None


def test_a_tokenizer_is_named_or_that_of_the_model_type() -> None:
    assert auto_classes.tokenizer_class("ByT5Tokenizer", "bert") is ByT5Tokenizer
    assert "Bert" in auto_classes.tokenizer_class(None, "bert").__name__
    assert auto_classes.tokenizer_class(None, "no such type") is None
