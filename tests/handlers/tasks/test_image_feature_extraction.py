"""Features of images: hidden states, and the pooler that some checkpoints lack."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from tests import tiny
from tests.images import TEXTS
from tests.sentences import Sentence
from tests.serving import Served

MODE = "image_feature_extraction"


def test_each_patch_has_a_vector_and_a_pooled_image_one(served: Callable[..., Served]) -> None:
    model = served(MODE)
    assert np.asarray(model.ask(TEXTS[0])).shape == (1, 17, 32)
    assert np.asarray(model.ask(TEXTS[0], pool=True)).shape == (1, 32)


def test_a_pooler_with_random_weights_is_not_used(tmp_path: Path) -> None:
    folder = tiny.write(tmp_path / "model", MODE)
    path = folder / "model.safetensors"
    weights = {
        name: value for name, value in load_file(path).items() if not name.startswith("pooler.")
    }
    save_file(weights, path, metadata={"format": "pt"})
    model = Served(folder, MODE)
    assert np.asarray(model.ask(TEXTS[0])).shape == (1, 17, 32)
    assert model.refuse(TEXTS[0], pool=True) == (
        422,
        Sentence("pool"),
    )
