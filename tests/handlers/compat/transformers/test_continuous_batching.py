from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from handlers.compat.transformers.continuous_batching import create_manager, is_stopping
from handlers.telemetry.log_levels import silence_libraries


@pytest.fixture(scope="module")
def module() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=64,
    )
    return LlamaForCausalLM(config).eval()


@pytest.fixture
def manager(module: LlamaForCausalLM) -> Iterator[Any]:
    found = create_manager(module, [], block_size=16, blocks=8, max_batch_tokens=64)
    found.start()
    yield found
    found.stop(block=True)


def test_texts_that_begin_alike_are_those_of_generate(
    module: LlamaForCausalLM, manager: Any
) -> None:
    prompts = {"a": [3, 4, 5, 6], "b": [3, 4, 5, 6], "c": [3, 4, 7]}
    for name, ids in prompts.items():
        manager.add_request(ids, name, max_new_tokens=4, streaming=True)
    texts: dict[str, list[int]] = {}
    finished: set[str] = set()
    end = time.monotonic() + 60
    while len(finished) < len(prompts) and time.monotonic() < end:
        if output := manager.get_result(timeout=0.1):
            assert output.error is None
            texts[output.request_id] = list(output.generated_tokens)
            finished |= {output.request_id} if output.is_finished() else set()
    config = GenerationConfig(max_new_tokens=4, do_sample=False, eos_token_id=None, pad_token_id=0)
    for name, ids in prompts.items():
        attention = module.config._attn_implementation
        module.set_attn_implementation("sdpa")
        expected = module.generate(torch.tensor([ids]), generation_config=config)
        module.set_attn_implementation(attention)
        assert texts[name] == expected[0, len(ids) :].tolist()


def test_a_manager_stops_once_it_is_told_to(manager: Any) -> None:
    assert not is_stopping(manager)
    manager.stop(block=False)
    assert is_stopping(manager)


def test_texts_are_not_logged(manager: Any) -> None:
    silence_libraries()
    names = [name for name in logging.root.manager.loggerDict if "ContinuousBatching" in name]
    assert names == ["ContinuousBatchingLogger"]
    assert not logging.getLogger(names[0]).isEnabledFor(logging.WARNING)
