"""Numbers that a model cannot compute: an error of their text, whatever is asked of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from hf_serve.handlers.errors import Unprocessable
from hf_serve.handlers.types.embeddings import quantized
from tests import tiny
from tests.sentences import refused
from tests.serving import Served, differences

INPUTS: dict[str, Callable[[str], Any]] = {
    "sentence_embedding": str,
    "feature_extraction": str,
    "sparse_embedding": str,
    "fill_mask": "{} [MASK]".format,
    "sentence_similarity": lambda text: {"source_sentence": "Ada", "sentences": ["a", text]},
    "sentence_ranking": lambda text: {"query": "Ada", "texts": ["a", text]},
    "zero_shot_classification": lambda text: {"text": text, "candidate_labels": "Ada, dull"},
}


def write_without_number_for(word: str, folder: Path, mode: str) -> Path:
    """Write a checkpoint in which a word has no finite vector."""
    # The logits of other tokens are not products with its vector.
    tiny.write(folder, mode, tie_word_embeddings=False)
    path, document = folder / "model.safetensors", (folder / "tokenizer.json").read_text("utf-8")
    weights = load_file(path)
    name = next(name for name in weights if "word_embeddings" in name)
    weights[name] = weights[name].copy()
    weights[name][json.loads(document)["model"]["vocab"][word]] = np.nan
    save_file(weights, path, metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize("mode", INPUTS)
def test_a_text_without_numbers_changes_none_beside_it(tmp_path: Path, mode: str) -> None:
    model = Served(write_without_number_for("music", tmp_path / "model", mode), mode)
    music, rain = INPUTS[mode]("music"), INPUTS[mode]("dull")
    ((status, answers),) = model.post({"inputs": [rain, music]})
    assert status == 200
    assert (answers[1]["code"], "no finite numbers" in answers[1]["message"]) == (422, True)
    assert "code" not in answers[0]
    assert model.refuse(music)[0] == 422


@pytest.mark.parametrize("mode", [*INPUTS, "sequence_classification", "token_classification"])
def test_a_text_without_numbers_changes_none_in_its_packed_row(tmp_path: Path, mode: str) -> None:
    model = Served(write_without_number_for("fox", tmp_path / "model", mode), mode)
    # The trial at load has shown no difference: it has other tokens.
    assert model.engine.model.capabilities.supports_packing
    texts = ["dull", "fox", "a fine film", "so", "the fox is fine", "bad"]
    bodies = [{"inputs": INPUTS.get(mode, str)(text)} for text in texts]
    alone = [model.post(body)[0] for body in bodies]
    assert [status for status, _ in alone] == [200, 422, 200, 200, 422, 200]
    together = model.post(*bodies)
    assert not differences([*map(list, together)], [*map(list, alone)], 1e-5)


@pytest.mark.parametrize(
    "parameters",
    [{"precision": "int8"}, {"precision": "ubinary"}, {"encoding_format": "base64"}],
)
def test_a_vector_without_numbers_is_none_in_another_type(
    tmp_path: Path, parameters: dict[str, Any]
) -> None:
    folder = write_without_number_for("music", tmp_path / "model", "sentence_embedding")
    assert Served(folder, "sentence_embedding").refuse("music", **parameters)[0] == 422


def test_a_number_that_is_too_large_for_a_type_is_refused() -> None:
    with refused(Unprocessable, "float16"):
        quantized(np.array([1.0, -70_000.0], dtype=np.float32), "float16")
