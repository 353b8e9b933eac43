from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, GPTQConfig, LlamaConfig, LlamaForCausalLM

from handlers.compat.transformers.quantizers import lacks_package


@pytest.mark.skipif(find_spec("gptqmodel") is not None, reason="gptqmodel is installed")
def test_a_missing_package_is_told_from_other_errors(tmp_path: Path) -> None:
    size = {"vocab_size": 32, "hidden_size": 32, "intermediate_size": 32}
    model = LlamaForCausalLM(LlamaConfig(**size, num_hidden_layers=1, num_attention_heads=2))
    model.config.quantization_config = GPTQConfig(bits=4).to_dict()
    model.save_pretrained(tmp_path)
    with pytest.raises((ImportError, NameError, ValueError, RuntimeError)) as raised:
        AutoModelForCausalLM.from_pretrained(tmp_path)
    assert lacks_package(raised.value)
    assert not lacks_package(ValueError("wrong"))
