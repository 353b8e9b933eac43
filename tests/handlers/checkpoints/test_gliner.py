"""Checkpoints of GLiNER: what is read, and what is refused by its name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

from hf_serve.handlers import tasks
from hf_serve.handlers.batching.words import tokenize_words
from hf_serve.handlers.checkpoints.gliner import GlinerCheckpoint
from hf_serve.handlers.config.handler_section import HandlerSection
from hf_serve.handlers.errors import WrongCheckpoint
from tests import tiny_gliner
from tests.reference.test_sentencepiece import PARTS
from tests.reference.test_sentencepiece import write as write_tokenizer
from tests.sentences import refused
from tests.serving import Served
from tests.tiny_gliner import DEBERTA, Kind

MODE = "zero_shot_token_classification"
HANDLER = HandlerSection(mode=MODE)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny_gliner.write(tmp_path / "model", Kind("DebertaV2", {"hidden_size": 24}, DEBERTA))


def set_config(folder: Path, **values: Any) -> None:
    path = folder / "gliner_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **values}), "utf-8")


@pytest.mark.parametrize(
    ("values", "facts"),
    [
        ({"labels_encoder": "BAAI/bge-small-en-v1.5"}, ["labels_encoder"]),
        ({"labels_decoder": "gpt2"}, ["labels_decoder"]),
        ({"relations_layer": "dot"}, ["relations_layer"]),
        ({"span_mode": "conv_share"}, ["conv_share", "markerV0"]),
        ({"words_splitter_type": "spacy"}, ["spacy", "whitespace"]),
        ({"fuse_layers": True}, ["fuse_layers"]),
        ({"span_mode": "token_level", "represent_spans": True}, ["represent_spans"]),
        ({"span_encoder_config": {"model_type": "rnn"}}, ["span_encoder_config"]),
        ({"precomputed_prompts_mode": True}, ["precomputed_prompts_mode"]),
        ({"model_type": "gliner_streaming_span"}, ["streaming"]),
        ({"encoder_config": {"model_type": "not-a-model"}}, ["not-a-model"]),
        ({"ent_token": "<<LABEL>>"}, ["<<LABEL>>"]),
        ({"encoder_config": None}, ["encoder_config", "config.json"]),
    ],
    ids=lambda value: next(iter(value), "") if isinstance(value, dict) else "",
)
def test_what_is_not_computed_is_refused_without_the_weights(
    folder: Path, values: dict[str, Any], facts: list[str]
) -> None:
    set_config(folder, **values)
    (folder / "model.safetensors").unlink()
    with refused(WrongCheckpoint, "gliner_config.json", *facts):
        tasks.load(folder, HANDLER)


def test_another_checkpoint_is_refused(tmp_path: Path) -> None:
    with refused(WrongCheckpoint, "gliner_config.json", "token_classification"):
        tasks.load(tmp_path, HANDLER)


def test_the_tokens_of_labels_are_added_to_the_sentencepiece_model_of_an_encoder(
    tmp_path: Path,
) -> None:
    part = next(each for each in PARTS if each["class"] == "DebertaV2Tokenizer")
    write_tokenizer(tmp_path, part)
    (tmp_path / "gliner_config.json").write_text("{}", encoding="utf-8")
    checkpoint = GlinerCheckpoint.read(tmp_path, HANDLER)
    size = checkpoint.config.vocab_size
    ids = tokenize_words(checkpoint.tokenizer, [["<<ENT>>", "Nina", "<<SEP>>", "☃"]])["input_ids"]
    nina = checkpoint.tokenizer("Nina")["input_ids"][1:-1]
    assert ids == [[1, size - 2, *nina, size - 1, *checkpoint.tokenizer("☃")["input_ids"][1:]]]


def test_weights_that_lack_a_layer_are_refused(folder: Path) -> None:
    path = folder / "model.safetensors"
    weights = load_file(path)
    del weights["prompt_rep_layer.0.weight"]
    save_file(weights, path)
    with refused(WrongCheckpoint, "prompt_rep_layer.0.weight"):
        Served(folder, MODE)


def test_weights_of_other_sizes_are_refused(folder: Path) -> None:
    set_config(folder, hidden_size=48)
    with pytest.raises(WrongCheckpoint, match=r"gliner_config.json: does not fit the weights"):
        Served(folder, MODE)


def test_an_encoder_with_relative_positions_is_limited_by_its_words_alone(folder: Path) -> None:
    set_config(folder, max_len=100)
    path = folder / "tokenizer_config.json"
    settings = {**json.loads(path.read_text("utf-8")), "model_max_length": 10**30}
    path.write_text(json.dumps(settings), "utf-8")
    assert tasks.load(folder, HANDLER).limits.max_length == 400


def test_an_encoder_with_numbered_positions_is_limited_by_them(tmp_path: Path) -> None:
    folder = tiny_gliner.write(tmp_path / "model", Kind("Bert", {"hidden_size": 32}))
    assert tasks.load(folder, HANDLER).limits.max_length == 512
