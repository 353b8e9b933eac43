from __future__ import annotations

from pathlib import Path

import pytest

from hf_serve.handlers.checkpoints.checkpoint_files import files_in
from hf_serve.handlers.errors import WrongCheckpoint
from hf_serve.scripts.hub.checkpoint_files import checkpoint_files, config_files
from tests.reference import static_embedding
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


@pytest.mark.parametrize("kind", ["folder", "root"])
def test_static_embeddings_have_a_tokenizer_and_vectors(tmp_path: Path, kind: str) -> None:
    folder = static_embedding.write(tmp_path / "model", kind)
    names = files_in(folder)
    files = checkpoint_files(names, "org/name", folder.joinpath)
    weights = files.weights(allow_pickle=False)
    assert {*files.configs(), *weights} == names
    assert weights[0].endswith("model.safetensors")
    (folder / weights[0]).unlink()
    with refused(WrongCheckpoint, "org/name", weights[0]):
        checkpoint_files(files_in(folder), "org/name", folder.joinpath).weights(allow_pickle=True)
