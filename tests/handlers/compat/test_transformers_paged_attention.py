"""Attention text by text: the manager's texts are those of `generate`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    GenerationConfig,
    GPT2Config,
    LlamaConfig,
    PreTrainedConfig,
    PreTrainedModel,
)

from hf_serve.handlers.compat.transformers import create_manager
from hf_serve.handlers.compat.transformers_paged_attention import (
    ATTENTION,
    attend_text_by_text,
    paged_attention,
)
from tests.continuous import finished_texts

SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
}
CONFIGS: Mapping[str, PreTrainedConfig] = {
    "a key head for each head": GPT2Config(vocab_size=64, n_embd=32, n_head=4, n_layer=2),
    "a key head for two heads": LlamaConfig(**SIZES),
}
# The longer ones are read in several steps.
PROMPTS = {str(length): list(range(3, 3 + length)) for length in (1, 5, 23, 41)}
NEW = 12


@pytest.mark.parametrize("kind", CONFIGS)
def test_texts_are_those_of_generate(kind: str) -> None:
    torch.manual_seed(0)
    module = AutoModelForCausalLM.from_config(CONFIGS[kind]).eval()
    settings = GenerationConfig(
        max_new_tokens=NEW, do_sample=False, eos_token_id=None, pad_token_id=0
    )
    expected = {
        name: module.generate(torch.tensor([ids]), generation_config=settings)[
            0, len(ids) :
        ].tolist()
        for name, ids in PROMPTS.items()
    }
    assert _texts(module) == expected


def _texts(module: PreTrainedModel) -> dict[str, list[int]]:
    manager = create_manager(module, [], block_size=16, blocks=32, max_batch_tokens=16)
    attend_text_by_text(module)
    assert module.config._attn_implementation == ATTENTION
    for name, ids in PROMPTS.items():
        manager.add_request(ids, name, max_new_tokens=NEW, streaming=True)
    manager.start()
    texts = finished_texts(manager, len(PROMPTS))
    manager.stop(block=True)
    return texts


@pytest.mark.parametrize(
    ("attention", "device"), [("eager", "cpu"), ("sdpa", "cuda:0"), ("sdpa", "meta")]
)
def test_other_attention_and_accelerators_are_as_before(
    monkeypatch: pytest.MonkeyPatch, attention: str, device: str
) -> None:
    module = AutoModelForCausalLM.from_config(
        CONFIGS["a key head for two heads"], attn_implementation=attention
    )
    monkeypatch.setattr(type(module), "device", torch.device(device))
    attend_text_by_text(module)
    assert module.config._attn_implementation == attention


@pytest.mark.parametrize("name", ["s_aux", "softcap", "position_bias", "sliding_window"])
def test_what_it_does_not_compute_is_refused(name: str) -> None:
    states, given = torch.zeros(1, 1, 1, 8), dict[str, Any]({name: torch.ones(1)})
    with pytest.raises(NotImplementedError):
        paged_attention(torch.nn.Module(), states, states, states, None, **given)
