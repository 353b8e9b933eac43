"""Sparse embeddings: the settings of the checkpoint, and prompts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hf_serve.handlers.errors import WrongCheckpoint
from tests import tiny
from tests.samples import FINE, LONG
from tests.sentences import Sentence, refused
from tests.serving import Served, differences

MODE = "sparse_embedding"
LIMITS, SETTINGS = "sentence_bert_config.json", "config_sentence_transformers.json"


def written(folder: Path, **files: Any) -> Path:
    """Return a checkpoint with files of JSON."""
    tiny.write(folder, MODE)
    for name, content in files.items():
        (folder / {"limits": LIMITS, "settings": SETTINGS}[name]).write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize(
    "limits", [{"max_seq_length": 20}, {"processing_kwargs": {"text": {"max_length": 20}}}]
)
def test_a_text_is_cut_to_the_length_of_the_modules(tmp_path: Path, limits: Any) -> None:
    cut = Served(written(tmp_path / "cut", limits=limits), MODE)
    whole = Served(written(tmp_path / "whole"), MODE)
    assert not differences(cut.ask(LONG), whole.ask(LONG, max_length=20), 1e-5)
    assert cut.ask(LONG) != whole.ask(LONG)
    assert cut.refuse(LONG, truncate=False) == (413, Sentence(20))


def test_the_checkpoint_says_how_many_weights_are_kept(tmp_path: Path) -> None:
    model = Served(written(tmp_path / "model", settings={"max_active_dims": 3}), MODE)
    assert len(model.ask(FINE)) == 3
    assert model.ask(FINE) == model.ask(FINE, top_k=5)[:3]


def test_prompts_precede_the_text_and_a_text_in_lower_case_is_the_same(tmp_path: Path) -> None:
    prompts = {"prompts": {"query": "who? ", "passage": None}, "default_prompt_name": "query"}
    files = {"settings": prompts, "limits": {"do_lower_case": True}}
    model = Served(written(tmp_path / "model", **files), MODE, prompts={"title": "title "})
    by_default = model.ask(FINE)
    assert by_default == model.ask(FINE.upper()) == model.ask(FINE, input_type="search_query")
    assert by_default == model.ask(f"who? {FINE}", prompt="")
    assert by_default != model.ask(FINE, input_type="document") == model.ask(FINE, prompt="")
    assert model.ask(FINE, prompt_name="title") == model.ask(FINE, prompt="title ")
    assert model.refuse(FINE, prompt_name="x") == (400, Sentence("prompt_name", "query"))


def test_texts_that_are_read_in_another_way_are_refused(tmp_path: Path) -> None:
    masked = {"transformer_task": "fill-mask", "modality_config": {"text": {"method": "forward"}}}
    assert Served(written(tmp_path / "masked", limits=masked), MODE).ask(FINE)
    states = {"modality_config": {"text": {"method_output_name": "last_hidden_state"}}}
    with refused(WrongCheckpoint, "last_hidden_state", "logits"):
        Served(written(tmp_path / "states", limits=states), MODE)
