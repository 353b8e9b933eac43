from __future__ import annotations

from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM

from benchmarks.text_generation.models import (
    FIRST_WORD,
    MODELS,
    config_of,
    language_model,
    word_tokenizer,
)


def test_any_ids_decode_to_a_text_that_is_encoded_to_them() -> None:
    tokenizer, ids = word_tokenizer(2000), list(range(FIRST_WORD, 2000))
    assert len(tokenizer) == 2000
    assert tokenizer(tokenizer.decode(ids))["input_ids"] == ids


@pytest.mark.parametrize("name", MODELS)
def test_no_token_ends_a_text(tmp_path: Path, name: str) -> None:
    folder = language_model(tmp_path / name, name, tiny=True)
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.generation_config.eos_token_id is None
    assert model.config.eos_token_id is None


def test_the_shapes_are_those_of_the_models_they_are_named_for() -> None:
    small, large = config_of("distilgpt2"), config_of("qwen2")
    assert (small.num_hidden_layers, small.hidden_size, small.vocab_size) == (6, 768, 50257)
    assert (large.num_hidden_layers, large.hidden_size, large.vocab_size) == (24, 896, 151936)
    assert (large.num_attention_heads, large.num_key_value_heads) == (14, 2)
    assert large.intermediate_size == 4864 and large.tie_word_embeddings


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_made_once(tmp_path: Path, name: str) -> None:
    folder = language_model(tmp_path, name, tiny=True)
    made = (folder / "model.safetensors").stat().st_mtime_ns
    assert (
        language_model(folder, name, tiny=True) / "model.safetensors"
    ).stat().st_mtime_ns == made
