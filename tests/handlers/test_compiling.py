from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification

from handlers.compiling import compiled
from handlers.config import ModelConfig
from handlers.engine import Engine
from handlers.graph import example
from handlers.requests import Request
from handlers.sections import Compile
from tests.serving import differences

MODE = "sequence_classification"
BATCHES = [example(("input_ids", "attention_mask"), 100, *shape) for shape in ((2, 8), (1, 9))]


@pytest.fixture
def module(checkpoint: Callable[..., Path]) -> Any:
    return AutoModelForSequenceClassification.from_pretrained(checkpoint(MODE)).eval()


def logits(module: Any) -> torch.Tensor:
    with torch.inference_mode():
        return torch.as_tensor(module(input_ids=torch.tensor([[2, 9, 11, 3]])).logits)


def test_nothing_is_compiled_unless_asked(module: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(torch, "compile", None)
    assert compiled(module, Compile(), BATCHES) is module


def test_a_compiled_model_answers_the_same(module: Any, caplog: Any) -> None:
    expected = logits(module)
    with caplog.at_level(logging.INFO):
        compiled(module, Compile(enable=True, backend="eager", mode="default"), BATCHES)
    assert "Compiled model with backend eager, mode default" in caplog.text
    assert torch.allclose(logits(module), expected, atol=1e-5)


@pytest.mark.parametrize("options", [{"backend": "no_such_backend"}, {"mode": "no such mode"}])
def test_a_model_that_does_not_compile_runs_eagerly(
    module: Any, caplog: Any, options: dict[str, Any]
) -> None:
    expected = logits(module)
    compiled(module, Compile(enable=True, **options), BATCHES)
    assert "torch.compile failed" in caplog.text
    assert torch.equal(logits(module), expected)


def test_a_compiled_model_is_explained_as_it_is(checkpoint: Callable[..., Path]) -> None:
    """Explanations hook into the layers, which a compiled graph would not notice."""
    document = {"handler": {"mode": MODE, "dtype": "float32"}}
    compile_it = {"pt2": {"compile": {"enable": True, "backend": "eager"}}}
    told = []
    for more in ({}, compile_it):
        engine = Engine.load(checkpoint(MODE), ModelConfig.parse({**document, **more}))
        told.append(engine.explain([Request("a fine film"), Request("dull")]))
    assert not differences(told[1], told[0], 1e-5)


def test_a_model_that_compiles_but_does_not_run_runs_eagerly(
    module: Any, monkeypatch: Any, caplog: Any
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError

    expected = logits(module)
    monkeypatch.setattr(torch, "compile", lambda *_, **__: broken)
    compiled(module, Compile(enable=True), BATCHES)
    assert "torch.compile failed (RuntimeError); the model runs eagerly" in caplog.text
    assert torch.equal(logits(module), expected)
