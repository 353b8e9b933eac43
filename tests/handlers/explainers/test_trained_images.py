"""A model that has learned coloured shapes is explained by the shape, not by its background."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest

from hf_serve.demo_models.making import make
from hf_serve.demo_models.synthetic_images import SIDE, Scene, as_base64, draw
from tests.serving import Served, explanation_of

pytestmark = pytest.mark.nightly

MODE = "image_classification"
# Enough to name most shapes, in 20 s of one core.
ROWS, EXAM_ROWS = 2000, 60
RESOLUTION = 8


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Served:
    folder = tmp_path_factory.mktemp("demo") / MODE
    make(MODE, folder, rows=ROWS, evaluation_rows=EXAM_ROWS)
    return Served(folder, MODE)


def inside(scene: Scene) -> Any:
    """Return which patches have their centre in the box of the shape."""
    centres = (np.arange(RESOLUTION) + 0.5) * SIDE / RESOLUTION
    left, top, right, bottom = scene.box
    rows, columns = (centres >= top) & (centres <= bottom), (centres >= left) & (centres <= right)
    return rows[:, None] & columns


@pytest.mark.parametrize("method", ["integrated_gradients", "occlusion", "feature_ablation"])
def test_most_of_what_supports_a_label_is_on_the_shape(trained: Served, method: str) -> None:
    scenes = [draw(Random(f"explained {number}")) for number in range(20)]
    settings = {"method": method, "resolution": RESOLUTION}
    bodies = [{"inputs": as_base64(scene.image), "parameters": settings} for scene in scenes]
    shares, areas = [], []
    for scene, (status, found) in zip(
        scenes, trained.post(*map(explanation_of, bodies)), strict=True
    ):
        assert status == 200, found
        if found["prediction"]["label"] == scene.label:
            supporting = np.asarray(found["importances"]).clip(min=0)
            shares.append(supporting[inside(scene)].sum() / supporting.sum())
            areas.append(inside(scene).mean())
    assert len(shares) > len(scenes) / 2
    assert np.median(shares) > 0.55 > np.median(areas)
    assert np.mean(np.array(shares) > np.array(areas)) > 0.8
