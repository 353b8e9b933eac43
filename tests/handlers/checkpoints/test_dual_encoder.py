"""The texts of SigLIP 2 are read in lower case, as its class in transformers does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import transformers

from hf_serve.handlers.checkpoints.checkpoint import Checkpoint
from hf_serve.handlers.config.handler_section import HandlerSection
from tests.tiny_tokenizers import write_siglip2

TEXT = "Nina SINGS in the bar"


def ids_of(folder: Path, text: str) -> list[int]:
    handler = HandlerSection(mode="multimodal_embedding")
    found: list[int] = Checkpoint.read(folder, handler).text_tokenizer(text)["input_ids"]
    return found


def write(folder: Path, model_type: str) -> None:
    write_siglip2(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": model_type}), encoding="utf-8")


@pytest.mark.parametrize("model_type", ["siglip", "siglip2"])
def test_capitals_of_a_text_are_read_as_small_letters(tmp_path: Path, model_type: str) -> None:
    write(tmp_path, model_type)
    expected = transformers.Siglip2Tokenizer.from_pretrained(tmp_path)(TEXT)["input_ids"]
    assert ids_of(tmp_path, TEXT) == ids_of(tmp_path, TEXT.lower()) == expected


def test_a_tokenizer_that_is_to_keep_capitals_keeps_them(tmp_path: Path) -> None:
    write(tmp_path, "siglip")
    path = tmp_path / "tokenizer_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**settings, "do_lower_case": False}), encoding="utf-8")
    assert ids_of(tmp_path, TEXT) != ids_of(tmp_path, TEXT.lower())
