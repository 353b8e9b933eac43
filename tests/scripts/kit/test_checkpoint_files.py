from __future__ import annotations

from pathlib import Path

import pytest

from handlers.errors import WrongCheckpoint
from scripts.kit.checkpoint_files import config_files, shard_files, weights_file
from tests.sentences import refused

SINGLE, INDEX, PICKLE = "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"


def test_config_and_tokenizer_files_are_selected_without_code() -> None:
    config = [
        "chat_template.jinja",
        "config.json",
        "preprocessor_config.json",
        "spiece.model",
        "tokenizer.json",
        "vocab.txt",
    ]
    others = [
        "modeling.py",
        "vocab.pkl",
        "README.md",
        "onnx/config.json",
        "original/tokenizer.model",
        "chat_templates/tool_use.jinja",
    ]
    assert config_files([*others, *config], "org/name") == config


def test_files_of_sentence_transformers_are_selected() -> None:
    chosen = [
        "1_Pooling/config.json",
        "2_Dense/config.json",
        "2_Dense/model.safetensors",
        "3_Dense/pytorch_model.bin",
        "config.json",
        "config_sentence_transformers.json",
        "modules.json",
        "sentence_bert_config.json",
    ]
    others = ["2_Dense/pytorch_model.bin", "0_Transformer/model.safetensors", "1_Pooling/code.py"]
    assert config_files([*others, *chosen], "org/name") == chosen
    assert config_files([each for each in chosen if each != "modules.json"], "org/name") == [
        "config.json"
    ]


def test_a_repository_without_a_config_is_rejected() -> None:
    with refused(WrongCheckpoint, "org/name", "config.json"):
        config_files([SINGLE], "org/name")


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        ([PICKLE, SINGLE, INDEX], SINGLE),
        ([PICKLE, INDEX], INDEX),
        ([PICKLE], PICKLE),
        (["pytorch_model.bin.index.json"], "pytorch_model.bin.index.json"),
    ],
)
def test_safetensors_are_preferred_over_pickles(names: list[str], chosen: str) -> None:
    assert weights_file(names, "org/name", allow_pickle=True) == chosen


def test_pickles_are_rejected_unless_allowed() -> None:
    with refused(WrongCheckpoint, "pytorch_model.bin", "handler.allow_pickle: true"):
        weights_file([PICKLE], "org/name", allow_pickle=False)


def test_a_repository_without_weights_is_rejected() -> None:
    with refused(WrongCheckpoint):
        weights_file(["adapter_model.safetensors", "model.gguf"], "org/name", allow_pickle=True)


def test_shards_of_an_index_are_listed_once(tmp_path: Path) -> None:
    index = tmp_path / INDEX
    index.write_text(
        '{"weight_map": {"a": "2.safetensors", "b": "1.safetensors", "c": "1.safetensors"}}'
    )
    names = ["1.safetensors", "2.safetensors", "3.safetensors"]
    assert shard_files(index, names, "org/name") == ["1.safetensors", "2.safetensors"]
    assert shard_files(tmp_path / SINGLE, names, "org/name") == []


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        (
            '{"weight_map": {"a": "gone.safetensors"}}',
            ["gone.safetensors"],
        ),
        (
            '{"weight_map": {"a": "sub/1.safetensors"}}',
            ["sub/1.safetensors"],
        ),
        ('{"weight_map": {"a": "../1.safetensors"}}', ["../1.safetensors"]),
        ('{"weight_map": {"a": "modeling.py"}}', ["modeling.py"]),
        ('{"weight_map": {"a": 5}}', [INDEX]),
        ('{"weight_map": {"a": ["1.safetensors"]}}', [INDEX]),
        ('{"weight_map": []}', [INDEX]),
        ('{"weight_map": {}}', [INDEX]),
        ('{"metadata": {}}', [INDEX]),
        ("oops", [INDEX]),
        ("[" * 100_000, [INDEX]),
    ],
)
def test_an_invalid_index_is_rejected(tmp_path: Path, text: str, facts: list[str]) -> None:
    (tmp_path / INDEX).write_text(text)
    with refused(WrongCheckpoint, *facts):
        shard_files(
            tmp_path / INDEX,
            ["1.safetensors", "../1.safetensors", "sub/1.safetensors", "modeling.py"],
            "org/name",
        )
