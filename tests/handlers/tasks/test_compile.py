from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForSequenceClassification

from hf_serve.handlers import tasks
from hf_serve.handlers.checkpoints.probe_inputs import example_batch
from hf_serve.handlers.config.handler_section import Compile, modes
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.engine import Engine
from hf_serve.handlers.formats.pretrained import PretrainedModel
from hf_serve.handlers.tasks.bases.audio import AudioTask
from hf_serve.handlers.tasks.warmup import compile_model
from hf_serve.handlers.types.request import Request
from tests.samples import requests_of
from tests.serving import differences
from tests.sounds import encoded, file_of, sound_of

MODE = "sequence_classification"
A_SECOND = encoded(file_of(sound_of(1, 1.0)))
# Their models run images or audio in their own sizes, of which torch compiles several kinds.
KEEPS_SIZES = (
    "audio_classification",
    "automatic_speech_recognition",
    "depth_estimation",
    "image_segmentation",
    "visual_question_answering",
)
BATCHES = [
    example_batch(("input_ids", "attention_mask"), 100, *shape) for shape in ((2, 8), (1, 9))
]


@pytest.fixture
def model(checkpoint: Callable[..., Path]) -> PretrainedModel:
    module = AutoModelForSequenceClassification.from_pretrained(checkpoint(MODE)).eval()
    return PretrainedModel(module, ("logits",))


def logits(model: PretrainedModel) -> torch.Tensor:
    return model.forward({"input_ids": torch.tensor([[2, 9, 11, 3]])})["logits"]


def compile_it(model: PretrainedModel, **options: Any) -> bool:
    def run() -> None:
        for batch in BATCHES:
            model.forward(batch)

    return compile_model(run, model, Compile(enable=True, **options))


def test_nothing_is_compiled_unless_configured(
    checkpoint: Callable[..., Path], monkeypatch: Any
) -> None:
    monkeypatch.setattr(torch, "compile", None)
    Engine.load(checkpoint(MODE), ModelConfig.parse({"handler": {"mode": MODE}}))


@pytest.mark.server  # the compiler is another process
def test_a_compiled_model_returns_the_same_logits(model: PretrainedModel, caplog: Any) -> None:
    expected = logits(model)
    with caplog.at_level(logging.INFO):
        assert compile_it(model, backend="eager", mode="default")
    assert "Compiled model with backend eager, mode default" in caplog.text
    assert torch.allclose(logits(model), expected, atol=1e-5)


@pytest.mark.parametrize("options", [{"backend": "no_such_backend"}, {"mode": "no such mode"}])
def test_a_model_that_does_not_compile_runs_eagerly(
    model: PretrainedModel, caplog: Any, options: dict[str, Any]
) -> None:
    expected = logits(model)
    assert not compile_it(model, **options)
    assert "torch.compile failed" in caplog.text
    assert torch.equal(logits(model), expected)


def test_rows_are_packed_for_a_model_that_did_not_compile(
    checkpoint: Callable[..., Path], caplog: Any
) -> None:
    document = {
        "handler": {"mode": MODE, "dtype": "float32"},
        "pt2": {"compile": {"enable": True, "backend": "no_such_backend"}},
    }
    with caplog.at_level(logging.INFO):
        engine = Engine.load(checkpoint(MODE), ModelConfig.parse(document))
    assert engine.model.capabilities.supports_packing
    assert "Compiled models run padded rows" not in caplog.text


@pytest.mark.nightly
def test_explanations_do_not_use_the_compiled_model(checkpoint: Callable[..., Path]) -> None:
    """Explanations use hooks of the layers, which a compiled graph would not call."""
    document = {"handler": {"mode": MODE, "dtype": "float32"}}
    compile_it = {"pt2": {"compile": {"enable": True, "backend": "eager"}}}
    explanations = []
    for more in ({}, compile_it):
        engine = Engine.load(checkpoint(MODE), ModelConfig.parse({**document, **more}))
        explanations.append(engine.explain([Request("a fine film"), Request("dull")]))
    assert not differences(explanations[1], explanations[0], 1e-4)


@pytest.mark.parametrize("mode", [MODE, pytest.param("text_generation", marks=pytest.mark.nightly)])
def test_a_model_that_compiles_but_does_not_run_runs_eagerly(
    checkpoint: Callable[..., Path], monkeypatch: Any, caplog: Any, mode: str
) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError

    document = {"handler": {"mode": mode, "dtype": "float32"}}
    expected = Engine.load(checkpoint(mode), ModelConfig.parse(document)).predict([Request("Ada")])
    monkeypatch.setattr(torch, "compile", lambda *_, **__: broken)
    engine = Engine.load(checkpoint(mode), ModelConfig.parse({**document, "pt2": "inductor"}))
    assert "torch.compile failed (RuntimeError); the model runs eagerly" in caplog.text
    assert "warm-up failed" not in caplog.text
    assert engine.predict([Request("Ada")]) == expected


@pytest.mark.server
def test_a_compiled_model_runs_each_batch_once_at_load(
    checkpoint: Callable[..., Path], monkeypatch: Any
) -> None:
    shapes: list[Any] = []
    forward = PretrainedModel.forward

    def noted(model: PretrainedModel, batch: Any) -> Any:
        shapes.append(batch["input_ids"].shape)
        return forward(model, batch)

    monkeypatch.setattr(PretrainedModel, "forward", noted)
    Engine.load(checkpoint(MODE), ModelConfig.parse({"handler": {"mode": MODE}, "pt2": "eager"}))
    assert shapes and len(shapes) == len(set(shapes))


# Every mode compiles the same forward passes, of which one mode is enough for `make test`.
@pytest.mark.nightly
@pytest.mark.parametrize(
    "mode",
    [
        mode if mode == MODE else pytest.param(mode, marks=pytest.mark.nightly)
        for mode in modes()
        if not tasks.get(mode).description.generation.texts
        and tasks.get(mode).description.exports.one_forward
        and not tasks.get(mode).description.generation.images
    ],
)
def test_nothing_is_compiled_for_the_first_request(
    checkpoint: Callable[..., Path], monkeypatch: Any, caplog: Any, mode: str
) -> None:
    """The backend is called at load only, whatever requests come later."""
    graphs: list[Any] = []

    def backend(graph: Any, _inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    torch.compiler.reset()
    original = torch.compile
    monkeypatch.setattr(
        torch, "compile", lambda model, **kw: original(model, **{**kw, "backend": backend})
    )
    document = {
        "handler": {"mode": mode, "dtype": "float32"},
        "pt2": {"compile": {"enable": True, "backend": "eager"}},
    }
    with caplog.at_level(logging.INFO):
        engine = Engine.load(checkpoint(mode), ModelConfig.parse(document))
    assert not engine.model.capabilities.supports_packing
    assert mode != MODE or "Compiled models run padded rows" in caplog.text
    compiled_at_load = len(graphs)
    assert compiled_at_load
    kept_sizes = mode in KEEPS_SIZES
    of_warmup = (
        A_SECOND
        if isinstance(engine.task, AudioTask)
        else engine.task.description.wire.example["inputs"]
    )
    inputs = [of_warmup] if kept_sizes else [each for each, _ in requests_of(mode)]
    requests = [Request(each) for each in inputs]
    for request in requests:
        engine.predict([request])
    engine.predict([*requests, *requests])
    assert len(graphs) == compiled_at_load
