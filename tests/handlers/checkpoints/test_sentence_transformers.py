"""The files of sentence-transformers: what is read, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from hf_serve.handlers.checkpoints.sentence_transformers import SentenceTransformer
from hf_serve.handlers.errors import WrongCheckpoint
from tests.reference.embedding_checkpoints import (
    NORM,
    SIZE,
    TANH,
    Module,
    dense,
    new,
    old,
    write_modules,
)
from tests.sentences import Sentence, refused

PICKLE = "pytorch_model.bin"


def read(folder: Path, *modules: Module) -> SentenceTransformer:
    write_modules(folder, modules)
    return SentenceTransformer.read(folder, SIZE)


def test_without_modules_it_is_the_mean_of_the_tokens(tmp_path: Path) -> None:
    found = SentenceTransformer.read(tmp_path, SIZE)
    assert (found.pooling.modes, found.normalizes, found.dimension) == (["mean"], False, SIZE)
    assert found.max_length is None
    assert found.settings.prompts == {}


@pytest.mark.parametrize(
    ("pooling", "modes"),
    [
        (old("mean_tokens", "cls_token"), ["cls", "mean"]),
        (old(), ["mean"]),
        (new("lasttoken"), ["lasttoken"]),
        (new(["max", "cls"]), ["max", "cls"]),
    ],
)
def test_the_pooling_has_old_or_new_keys(tmp_path: Path, pooling: Module, modes: Any) -> None:
    found = read(tmp_path, pooling)
    assert found.pooling.modes == modes
    assert found.dimension == SIZE * len(modes)


def test_only_a_normalization_at_the_end_can_be_switched(tmp_path: Path) -> None:
    found = read(tmp_path, old("mean_tokens"), NORM, dense(SIZE, 5, TANH), NORM)
    assert found.normalizes
    assert (found.dimension, [each.kind for each in found.layers]) == (5, ["Normalize", "Dense"])
    assert len(found.reduction().layers) == 2


def test_a_prompt_that_is_null_is_empty_and_maxsim_is_no_similarity(tmp_path: Path) -> None:
    settings = '{"prompts": {"query": "a", "document": null}, "similarity_fn_name": "maxsim"}'
    (tmp_path / "config_sentence_transformers.json").write_text(settings)
    found = SentenceTransformer.read(tmp_path, SIZE).settings
    assert found.prompts == {"query": "a", "document": ""}
    assert found.similarity_fn_name is None


def test_an_unknown_similarity_is_refused(tmp_path: Path) -> None:
    settings = '{"similarity_fn_name": "cosin"}'
    (tmp_path / "config_sentence_transformers.json").write_text(settings)
    with pytest.raises(WrongCheckpoint, match="similarity_fn_name"):
        SentenceTransformer.read(tmp_path, SIZE)


@pytest.mark.parametrize(
    ("file", "length"),
    [
        ('{"max_seq_length": 20}', 20),
        ('{"processing_kwargs": {"text": {"max_length": 10}}}', 10),
        ('{"max_seq_length": 20, "processing_kwargs": {"text": {"max_length": 30}}}', 30),
    ],
)
def test_the_length_of_a_text_has_an_old_or_a_new_key(
    tmp_path: Path, file: str, length: int
) -> None:
    (tmp_path / "sentence_bert_config.json").write_text(file)
    assert SentenceTransformer.read(tmp_path, SIZE).max_length == length


@pytest.mark.parametrize(
    ("file", "content", "facts"),
    [
        ("modules.json", "[", ["modules.json"]),
        ("modules.json", "[]", ["modules.json"]),
        (
            "modules.json",
            '[{"path": "../x", "type": "a.Transformer"}]',
            ["modules.json"],
        ),
        (
            "modules.json",
            '[{"path": "", "type": "sentence_transformers.models.Router"}]',
            ["modules.json", "Router"],
        ),
        (
            "modules.json",
            '[{"path": "0_T", "type": "sentence_transformers.models.Transformer"}, '
            '{"path": "1_P", "type": "sentence_transformers.models.Pooling"}]',
            ["modules.json", "0_T"],
        ),
        ("1_Pooling/config.json", '{"pooling_mode": "median"}', ["1_Pooling/config.json"]),
        ("sentence_bert_config.json", '{"max_seq_length": -1}', ["max_seq_length"]),
        ("sentence_bert_config.json", '{"transformer_task": "fill-mask"}', ["fill-mask"]),
        (
            "sentence_bert_config.json",
            '{"modality_config": {"text": {"method": "forward"}, "message": {"format": "flat"}}}',
            ["chat template", "message"],
        ),
        (
            "sentence_bert_config.json",
            '{"modality_config": {"text": {"method": "get_text_features"}}}',
            ["get_text_features"],
        ),
        (
            "sentence_bert_config.json",
            '{"processing_kwargs": {"text": {"add_special_tokens": false}}}',
            ["add_special_tokens"],
        ),
        ("config_sentence_transformers.json", '{"default_prompt_name": "q"}', ["q"]),
        ("config_sentence_transformers.json", '{"truncate_dim": 0}', ["truncate_dim"]),
        (
            "2_Dense/config.json",
            '{"in_features": 32, "out_features": 4, "module_input_name": "token_embeddings"}',
            ["2_Dense/config.json", "token_embeddings"],
        ),
        (
            "2_Dense/config.json",
            '{"in_features": 7, "out_features": 2}',
            ["2_Dense/config.json", "7"],
        ),
    ],
)
def test_a_wrong_file_is_a_sentence(
    tmp_path: Path, file: str, content: str, facts: list[str]
) -> None:
    write_modules(tmp_path, [old("mean_tokens"), dense(SIZE, 4, TANH)])
    (tmp_path / file).write_text(content)
    with pytest.raises(WrongCheckpoint) as caught:
        SentenceTransformer.read(tmp_path, SIZE)
    assert str(caught.value) == Sentence(*facts)
    assert "\n" not in str(caught.value)


def test_a_missing_config_of_a_module_is_named(tmp_path: Path) -> None:
    write_modules(tmp_path, [old("mean_tokens")])
    (tmp_path / "1_Pooling" / "config.json").unlink()
    with refused(WrongCheckpoint, "1_Pooling/config.json"):
        SentenceTransformer.read(tmp_path, SIZE)


def test_a_normalization_of_other_vectors_is_refused(tmp_path: Path) -> None:
    norm: Module = ("sentence_transformers.models.LayerNorm", {"dimension": 7})
    with refused(WrongCheckpoint, 7, 32):
        read(tmp_path, old("mean_tokens"), norm)


def test_an_activation_that_is_code_is_refused(tmp_path: Path) -> None:
    with refused(WrongCheckpoint, "os.system"):
        read(tmp_path, old("mean_tokens"), dense(SIZE, 4, "os.system"))


def test_weights_in_a_pickle_of_tensors_are_loaded_and_other_pickles_refused(
    tmp_path: Path,
) -> None:
    found = read(tmp_path, old("mean_tokens"), dense(SIZE, 4, TANH))
    folder = tmp_path / "2_Dense"
    expected = found.reduction().state_dict()
    tensors = {name.removeprefix("layers.0."): each for name, each in expected.items()}
    torch.save(tensors, folder / PICKLE)
    (folder / "model.safetensors").unlink()
    for name, each in found.reduction().state_dict().items():
        assert torch.equal(each, expected[name])
    torch.save({"linear.weight": Path("x")}, folder / PICKLE)
    with refused(WrongCheckpoint, "2_Dense/pytorch_model.bin"):
        found.reduction()
    (folder / PICKLE).unlink()
    with refused(WrongCheckpoint, "2_Dense/model.safetensors"):
        found.reduction()
