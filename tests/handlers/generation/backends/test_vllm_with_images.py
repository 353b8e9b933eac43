"""Texts about images by vLLM: the texts of `generate`, alone and in company."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.engine import Engine
from hf_serve.handlers.types.request import Request
from tests import tiny_multimodal
from tests.handlers.generation.backends.test_openvino_genai_images import INPUTS
from tests.serving import differences
from tests.vllm_python import VLLM_PYTHON

pytestmark = pytest.mark.vllm

FAMILIES = ["llava", "idefics3", "qwen2_vl", "qwen2_5_vl"]


@pytest.fixture(scope="module", autouse=True)
def small_for_vllm() -> Iterator[None]:
    """Have vLLM compile nothing, and write models with heads of 32 numbers, its smallest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_CPU_CI_ENV", "1")
        sizes = {**tiny_multimodal.SIZES, "num_attention_heads": 1}
        patch.setattr(tiny_multimodal, "SIZES", sizes)
        yield


def name_as_on_the_hub(path: Path) -> None:
    """Rename weights of a LLaVA: vLLM does not know the names that transformers 5.5.4 writes."""
    tensors = {name.removeprefix("model."): each for name, each in load_file(path).items()}
    save_file(tensors, path, {"format": "pt"})


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Engine, Engine]]:
    @cache
    def load(family: str) -> tuple[Engine, Engine]:
        """Return a checkpoint as vLLM and as transformers run it."""
        folder = tmp_path_factory.mktemp(family)
        getattr(tiny_multimodal, f"write_{family}")(folder, {}, 1)
        if family == "llava":
            name_as_on_the_hub(folder / "model.safetensors")
        keys = {"mode": "image_text_to_text", "dtype": "float32"}
        vllm = {"engine": "vllm", "vllm_python": str(VLLM_PYTHON), "max_num_seqs": 16}
        by_vllm = {"continuousBatching": True, "handler": {**keys, **vllm}}
        return (
            Engine.load(folder, ModelConfig.parse(by_vllm)),
            Engine.load(folder, ModelConfig.parse({"handler": keys})),
        )

    return load


@pytest.mark.parametrize("family", FAMILIES)
def test_texts_are_those_of_generate_alone_and_in_company(
    engines: Callable[[str], tuple[Engine, Engine]], family: str
) -> None:
    engine, reference = engines(family)
    requests = [Request(each, {"max_new_tokens": 12, "details": True}) for each in INPUTS]
    expected: list[Any] = [reference.predict([each])[0] for each in requests]
    assert len({each[0]["generated_text"] for each in expected}) == len(INPUTS)
    alone = [engine.predict([each])[0] for each in requests]
    assert not differences(alone, expected, 1e-4)
    with ThreadPoolExecutor(len(requests)) as clients:
        together = list(clients.map(lambda each: engine.predict([each])[0], requests))
    assert not differences(together, expected, 1e-4)


@pytest.mark.parametrize(
    "parameters",
    [
        {"repetition_penalty": 1.5},
        {"num_return_sequences": 2, "do_sample": True, "top_k": 1},
        {"grammar": {"type": "regex", "value": "[a-c]{5}"}},
    ],
    ids=lambda each: next(iter(each)),
)
def test_settings_have_the_effect_that_they_have_with_generate(
    engines: Callable[[str], tuple[Engine, Engine]], parameters: dict[str, Any]
) -> None:
    engine, reference = engines("llava")
    request = Request(INPUTS[0], {"max_new_tokens": 8, **parameters})
    assert engine.predict([request]) == reference.predict([request])
