"""Each family of decoders has the greedy texts of transformers' `generate`, however it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel

from hf_serve.handlers import formats
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.engine import Engine
from hf_serve.handlers.errors import WrongCheckpoint
from hf_serve.handlers.types.request import Request, TokenIds
from tests import families
from tests.family_sizes import POSITIONS
from tests.sentences import refused

MODE = "text_generation"
# Most are longer than the window of 16 tokens, and two are of equal length.
LENGTHS = (5, 60, 17, 140, 17, 33)
NEW_TOKENS = 24
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10_000.0,
    "short_factor": [1.0] * 8,
    "long_factor": [4.0] * 8,
    "original_max_position_embeddings": 32,
}
# With tied embeddings, random weights repeat the last token.
UNTIED = {"tie_word_embeddings": False}
SLIDING_AND_FULL = ["sliding_attention", "full_attention"]


@dataclass(frozen=True)
class Family:
    """A family of decoders; `window` is the key of its sliding window, which is 16 tokens."""

    model_type: str
    values: dict[str, Any] = field(default_factory=dict)
    window: str | None = None


FAMILIES = {
    "falcon": Family("falcon"),
    "falcon with ALiBi": Family("falcon", {"alibi": True}),
    "gemma": Family("gemma", UNTIED),
    "gemma2": Family("gemma2", UNTIED, window="sliding_window"),
    "gemma3": Family(
        "gemma3_text", {"layer_types": SLIDING_AND_FULL, **UNTIED}, window="sliding_window"
    ),
    "gpt2": Family("gpt2"),
    "gpt_neox": Family("gpt_neox"),
    "llama": Family("llama"),
    "mistral": Family("mistral", window="sliding_window"),
    "opt": Family("opt"),
    "phi": Family("phi", {"num_key_value_heads": 2}),
    "phi3": Family("phi3", window="sliding_window"),
    "qwen2": Family("qwen2"),
    "qwen2 with windows": Family(
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1},
        window="sliding_window",
    ),
    "qwen3": Family("qwen3"),
}
PHI3_LONGROPE = Family(
    "phi3",
    {
        "sliding_window": None,
        "original_max_position_embeddings": 32,
        "rope_parameters": LONGROPE,
    },
)
# An export of each other one takes as long and is marked `nightly`.
QUICK = ("llama",)
# openvino-genai does not load these.
NOT_CONTINUOUS = ("falcon with ALiBi",)


def module_of(family: Family, **values: Any) -> PreTrainedModel:
    return families.module(
        family.model_type, MODE, **{"num_hidden_layers": 2, **family.values, **values}
    )


@cache
def prompts() -> list[list[int]]:
    generator = torch.Generator().manual_seed(1)
    drawn = [torch.randint(10, 100, (length - 1,), generator=generator) for length in LENGTHS]
    return [[0, *each.tolist()] for each in drawn]


def generate(module: PreTrainedModel, given: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the new tokens of each prompt, as transformers generates them for it alone."""
    options = {"max_new_tokens": NEW_TOKENS, "do_sample": False, "pad_token_id": 1}
    with torch.inference_mode():
        rows = [module.generate(torch.tensor([ids]), **options)[0].tolist() for ids in given]
    new = [row[len(ids) :] for row, ids in zip(rows, given, strict=True)]
    return [[token for token in row if token != module.config.eos_token_id] for row in new]


def predict(engine: Engine, given: Sequence[Sequence[int]]) -> list[Any]:
    """Return the new tokens of prompts that run side by side, or their errors."""
    parameters = {"max_new_tokens": NEW_TOKENS, "details": True}
    outcomes = engine.predict([Request(TokenIds(tuple(ids)), parameters) for ids in given])
    return [
        [token["id"] for token in outcome[0]["details"]["tokens"]]
        if isinstance(outcome, list)
        else outcome
        for outcome in outcomes
    ]


def served(*, continuous: bool = False, **handler: Any) -> ModelConfig:
    settings = {"mode": MODE, "dtype": "float32", **handler}
    return ModelConfig.parse({"continuousBatching": continuous, "handler": settings})


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.nightly) for name in FAMILIES],
)
def test_texts_of_a_batch_are_those_of_generate(name: str) -> None:
    module = module_of(FAMILIES[name])
    expected = generate(module, prompts())
    assert predict(families.engine(module, MODE), prompts()) == expected
    assert len({token for each in expected for token in each}) > 10


@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if family.window])
def test_the_window_of_a_family_changes_its_texts(name: str) -> None:
    family = FAMILIES[name]
    wide = module_of(family, **{str(family.window): POSITIONS})
    assert generate(module_of(family), prompts()) != generate(wide, prompts())


@pytest.mark.openvino
@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.nightly) for name in FAMILIES],
)
def test_an_export_has_the_texts_of_generate(name: str, tmp_path: Path) -> None:
    module = module_of(FAMILIES[name])
    families.save(module, tmp_path)
    static = served(save_mode="openvino")
    formats.export(tmp_path, static, tmp_path)
    expected = generate(module, prompts())
    assert predict(Engine.load(tmp_path, static), prompts()) == expected
    continuous = served(save_mode="openvino", continuous=True)
    if name in NOT_CONTINUOUS:
        with refused(WrongCheckpoint, "continuousBatching"):
            Engine.load(tmp_path, continuous)
        return
    engine = Engine.load(tmp_path, continuous)
    # The second time, the tokens of the prompts are in the cache.
    assert [predict(engine, prompts()) for _ in range(2)] == [expected, expected]


def test_longrope_texts_have_the_factors_of_their_own_length() -> None:
    module = module_of(PHI3_LONGROPE)
    engine = families.engine(module, MODE)
    assert predict(engine, prompts()) == generate(module, prompts())
    # Tokens that are only tried would change the factors of those before them.
    assert not engine.model.capabilities.supports_prompt_lookup


@pytest.mark.openvino
@pytest.mark.nightly
def test_longrope_is_exported_for_texts_with_the_short_factors(tmp_path: Path) -> None:
    module = module_of(PHI3_LONGROPE)
    families.save(module, tmp_path)
    long = served(save_mode="openvino")
    with refused(WrongCheckpoint, "handler.max_total_tokens: 32"):
        formats.export(tmp_path, long, tmp_path)
    short: dict[str, Any] = {"save_mode": "openvino", "max_total_tokens": 32}
    formats.export(tmp_path, served(**short), tmp_path)
    given = [prompts()[0], prompts()[2][:8]]
    for continuous in (False, True):
        engine = Engine.load(tmp_path, served(continuous=continuous, **short))
        assert predict(engine, given) == generate(module, given)
