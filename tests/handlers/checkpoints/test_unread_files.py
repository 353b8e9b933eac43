"""What the files of a checkpoint say beyond what is computed is refused, or said at load."""

from __future__ import annotations

import json
import logging
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hf_serve.handlers import tasks
from hf_serve.handlers.checkpoints.checkpoint_files import missing_config, missing_weights
from hf_serve.handlers.checkpoints.unread_files import (
    describe_unread,
    describe_unread_of,
    unread_files,
    unread_parts,
)
from hf_serve.handlers.config.handler_section import HandlerSection
from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.engine import Engine
from hf_serve.handlers.errors import WrongCheckpoint
from tests.sentences import Sentence, refused
from tests.tiny import Traitor

CLASSIFIES, EMBEDS = "sequence_classification", "sentence_embedding"
SETFIT = {"config_setfit.json": {"labels": ["no", "yes"], "normalize_embeddings": False}}
WITH_N_GRAMS = {"processor_class": "Wav2Vec2ProcessorWithLM"}
MLX = {"quantization": {"group_size": 64, "bits": 4}}
Copy = Callable[..., Path]


@pytest.fixture
def copy(checkpoint: Callable[..., Path], tmp_path: Path) -> Copy:
    """Copy the tiny checkpoint of a mode, and add files and keys of its config."""

    def make(mode: str, files: dict[str, Any], **config: Any) -> Path:
        folder = Path(shutil.copytree(checkpoint(mode), tmp_path / "copy"))
        own = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        for name, content in {**files, "config.json": {**own, **config}}.items():
            (folder / name).write_text(json.dumps(content), encoding="utf-8")
        return folder

    return make


def test_the_head_of_setfit_is_not_loaded_and_what_is_left_out_is_said(
    copy: Copy, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = copy(EMBEDS, SETFIT)
    (folder / "model_head.pkl").write_bytes(pickle.dumps(Traitor(tmp_path / "ran")))
    with refused(WrongCheckpoint, "SetFit", "model_head.pkl", "mode: sentence_embedding"):
        tasks.load(folder, HandlerSection(mode=CLASSIFIES))
    with caplog.at_level(logging.WARNING):
        Engine.load(folder, ModelConfig.parse({"handler": {"mode": EMBEDS}}))
    assert [each for each in caplog.messages if "model_head.pkl" in each] == [
        Sentence("model_head.pkl", "SetFit")
    ]
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("files", "config", "facts"),
    [
        ({"quantize_config.json": {"bits": 4}}, {}, ["quantize_config.json"]),
        ({}, MLX, ["MLX", 4]),
    ],
)
def test_weights_in_a_format_that_is_not_read_are_refused_by_small_files(
    copy: Copy, files: dict[str, Any], config: dict[str, Any], facts: list[object]
) -> None:
    with refused(WrongCheckpoint, *facts):
        tasks.load(copy(CLASSIFIES, files, **config), HandlerSection(mode=CLASSIFIES))


def test_a_tokenizer_of_mistral_alone_is_refused(copy: Copy) -> None:
    folder = copy("text_generation", {"tekken.json": {}})
    for path in folder.glob("*token*r*.json"):
        path.unlink()
    for path in (*folder.glob("vocab*"), *folder.glob("merges*")):
        path.unlink()
    with refused(WrongCheckpoint, "tekken.json", "tokenizer.json"):
        tasks.load(folder, HandlerSection(mode="text_generation"))


@pytest.mark.parametrize(
    ("names", "fact"),
    [
        (["params.json", "consolidated.safetensors", "tekken.json"], "consolidated.safetensors"),
        (["onnx/model.onnx", "onnx/model_quantized.onnx", "a/b.onnx"], "onnx/model.onnx"),
        (["openvino/openvino_model.xml"], "openvino/openvino_model.xml"),
        (["model-Q4_K_M.gguf"], "model-Q4_K_M.gguf"),
    ],
)
@pytest.mark.parametrize("missing", [missing_config, missing_weights])
def test_weights_of_other_programs_alone_have_their_name(
    names: list[str], fact: str, missing: Callable[..., WrongCheckpoint]
) -> None:
    assert str(missing(names, "org/name")) == Sentence("org/name", fact)


@pytest.mark.parametrize(
    ("names", "parts"),
    [
        (["config_setfit.json", "model.safetensors"], ["model_head.pkl"]),
        (["head.joblib", "classifier.pt", "optimizer.pt"], ["classifier.pt", "head.joblib"]),
        (["adapter_model.safetensors"], ["adapter_model.safetensors"]),
        (["colbert_linear.pt", "sparse_linear.pt"], []),
        (["sparse_linear.pt"], ["sparse_linear.pt"]),
        (
            ["alphabet.json", "language_model/5gram.bin", "language_model/unigrams.txt"],
            ["language_model/5gram.bin"],
        ),
        (["2_Dense/model.safetensors", "model.gguf", "training_args.bin", "a.onnx"], []),
    ],
)
def test_parts_of_a_model_in_files_of_their_own_are_found(
    names: list[str], parts: list[str]
) -> None:
    assert unread_parts(names) == parts


@pytest.mark.parametrize("files", [[], ["language_model/5gram.bin"]])
def test_the_n_grams_of_a_recognizer_of_speech_are_said_to_be_left_out(
    files: list[str], copy: Copy
) -> None:
    handler = HandlerSection(mode="automatic_speech_recognition")
    folder = copy(handler.mode, {"preprocessor_config.json": WITH_N_GRAMS})
    for name in files:
        (folder / name).parent.mkdir()
        (folder / name).touch()
    (name,) = files or ["language_model"]
    assert describe_unread_of(folder, handler) == Sentence(name, "n-grams", "pyctcdecode")


def test_code_of_other_containers_is_named_with_the_key_that_runs_it() -> None:
    found = unread_files(["config.json", "code/inference.py", "inference.py"])
    assert describe_unread(found) == Sentence("code/inference.py", "handler.custom")


def test_many_files_are_counted() -> None:
    found = describe_unread([f"adapter.{name}.bin" for name in "abcde"])
    assert found == Sentence("adapter.a.bin", "adapter.c.bin", 2)
