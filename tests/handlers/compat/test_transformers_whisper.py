from __future__ import annotations

import inspect

import pytest
from transformers import WhisperForConditionalGeneration
from transformers.generation import GenerationMixin

from hf_serve.handlers.compat.transformers_whisper import WhisperWithOtherCache

SOURCE = "".join(
    inspect.getsource(each)
    for each in (*WhisperForConditionalGeneration.__mro__[:3], GenerationMixin)
)
REPLACED = [
    name
    for name, each in vars(WhisperWithOtherCache).items()
    if isinstance(each, staticmethod) or inspect.isfunction(each)
]


@pytest.mark.parametrize("name", REPLACED)
def test_generate_calls_each_method_that_is_replaced(name: str) -> None:
    """The tests of `save_mode: openvino` compare whole texts."""
    assert hasattr(WhisperForConditionalGeneration, name)
    assert f".{name}(" in SOURCE
