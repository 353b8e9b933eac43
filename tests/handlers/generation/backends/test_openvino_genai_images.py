"""Texts about images by openvino-genai: the texts of `generate`, alone and in company."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any

import psutil
import pytest

from hf_serve.handlers import formats
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.engine import Engine
from hf_serve.handlers.generation.backends.openvino_genai import PROGRAM
from hf_serve.handlers.generation.backends.process import BackendModel
from hf_serve.handlers.types.request import Request
from tests import tiny_multimodal
from tests.continuous import wait_for_texts
from tests.images import TEXTS
from tests.modes.image_text_to_text import chat_about
from tests.serving import SequenceStream, differences

# The engine is another process.
pytestmark = [pytest.mark.openvino, pytest.mark.server]

FAMILIES = ["llava", pytest.param("idefics3", marks=pytest.mark.nightly)]
FEW = {"max_new_tokens": 12}
BOTH = [
    {
        "role": "user",
        "content": [*(chat_about(each, "Is it?")[0]["content"][0] for each in TEXTS[:2])],
    }
]
INPUTS = [
    *(chat_about(image, asked) for image in TEXTS for asked in ("What is it?", "Why?")),
    BOTH,
    "Once upon a time",
]


def config(**handler: Any) -> ModelConfig:
    continuous = handler.get("save_mode") == "openvino"
    keys = {"mode": "image_text_to_text", "dtype": "float32", **handler}
    return ModelConfig.parse({"continuousBatching": continuous, "handler": keys})


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Engine, Engine]]:
    @cache
    def load(family: str) -> tuple[Engine, Engine]:
        """Return an exported model and its checkpoint."""
        checkpoint = tmp_path_factory.mktemp(family)
        getattr(tiny_multimodal, f"write_{family}")(checkpoint, {}, 1)
        export = tmp_path_factory.mktemp("export") / family
        shutil.copytree(checkpoint, export)
        exported = config(save_mode="openvino", max_num_seqs=16)
        formats.export(checkpoint, exported, export)
        return Engine.load(export, exported), Engine.load(checkpoint, config())

    return load


def ask(engine: Engine, request: Request) -> Any:
    return engine.predict([request])[0]


@contextmanager
def suspended() -> Iterator[None]:
    """Suspend the processes of the engines within the block."""
    processes = [
        each
        for each in psutil.Process().children(recursive=True)
        if PROGRAM.script.name in " ".join(each.cmdline())
    ]
    for each in processes:
        each.suspend()
    try:
        yield
    finally:
        for each in processes:
            each.resume()


@pytest.mark.parametrize("family", FAMILIES)
def test_texts_are_those_of_the_checkpoint_alone_and_in_company(
    engines: Callable[[str], tuple[Engine, Engine]], family: str
) -> None:
    engine, reference = engines(family)
    requests = [Request(each, {**FEW, "details": True}) for each in INPUTS]
    expected = [ask(reference, each) for each in requests]
    assert len({each[0]["generated_text"] for each in expected}) == len(INPUTS)
    alone = [ask(engine, each) for each in requests]
    assert not differences(alone, expected, 1e-4)
    with ThreadPoolExecutor(len(requests)) as clients:
        together = list(clients.map(lambda each: ask(engine, each), requests))
    assert not differences(together, expected, 1e-4)


@pytest.mark.parametrize(
    "parameters",
    [
        {"num_beams": 3, "num_return_sequences": 2},
        {"frequency_penalty": 1.5, "min_new_tokens": 6},
        {"grammar": {"type": "regex", "value": "[a-c]{5}"}},
        # These read the tokens of the prompt, which openvino-genai has as vectors.
        {"repetition_penalty": 1.5},
        {"no_repeat_ngram_size": 2},
    ],
    ids=lambda each: next(iter(each)),
)
def test_settings_have_the_effect_that_they_have_with_the_checkpoint(
    engines: Callable[[str], tuple[Engine, Engine]], parameters: dict[str, Any]
) -> None:
    engine, reference = engines("llava")
    request = Request(INPUTS[0], {**FEW, **parameters})
    assert engine.predict([request]) == reference.predict([request])


def test_streams_share_the_forwards_of_the_decoder(
    engines: Callable[[str], tuple[Engine, Engine]],
) -> None:
    engine, _ = engines("llava")
    model = engine.model
    assert isinstance(model, BackendModel)
    tokens = {"max_new_tokens": 40, "min_new_tokens": 40}

    def stream(number: int) -> str:
        parts: list[tuple[int, str]] = []
        request = Request(INPUTS[number % 8], tokens, stream=SequenceStream(parts, 1))
        text = str(ask(engine, request)[0]["generated_text"])
        assert "".join(part for _, part in parts) == text
        return text

    begun = model.steps
    alone = [stream(number) for number in range(16)]
    between = model.steps
    with ThreadPoolExecutor(16) as clients:
        with suspended():
            texts = [clients.submit(stream, number) for number in range(16)]
            wait_for_texts(engine, 16)
        assert [each.result() for each in texts] == alone
    assert (model.steps - between) * 10 < between - begun
