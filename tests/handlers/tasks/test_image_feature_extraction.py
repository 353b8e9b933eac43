"""Features of images: hidden states, and the pooler that some checkpoints lack."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from transformers import ViTMAEConfig, ViTMAEForPreTraining, ViTMAEModel

from hf_serve.handlers.errors import WrongCheckpoint
from tests import images, tiny
from tests.images import TEXTS
from tests.sentences import Sentence, refused
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


def test_a_masked_autoencoder_is_served_as_the_encoder_that_reads_whole_images(
    tmp_path: Path,
) -> None:
    folder = tiny.write(tmp_path / "model", MODE)
    path = folder / "config.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    sizes = {name: each for name, each in values.items() if name not in ("model_type", "dtype")}
    torch.manual_seed(0)
    ViTMAEForPreTraining(ViTMAEConfig(**sizes)).save_pretrained(folder)
    with refused(WrongCheckpoint, "vit_mae", "75%", "model_type: vit"):
        Served(folder, MODE)
    own = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**own, "model_type": "vit", "architectures": ["ViTModel"]}))
    model = Served(folder, MODE)
    path.write_text(json.dumps(own))
    # Without hidden patches, in the order of the noise.
    whole = ViTMAEModel.from_pretrained(folder, mask_ratio=0.0).eval()
    task: Any = model.engine.task
    row = task.preprocess(images.IMAGES[0])
    pixels = torch.from_numpy(row.features["pixel_values"])[None]
    with torch.no_grad():
        wanted = whole(pixels, noise=torch.arange(16.0)[None]).last_hidden_state
    np.testing.assert_allclose(model.ask(TEXTS[0]), wanted, atol=1e-4)
