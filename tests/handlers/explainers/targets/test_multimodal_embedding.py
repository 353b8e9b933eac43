"""Cosines of texts and images are explained by tokens and by patches, as direct gradients say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hf_serve.handlers.checkpoints.dual_encoder import OUTPUT
from hf_serve.handlers.errors import BadRequest
from hf_serve.handlers.explainers import methods_for, targets
from hf_serve.handlers.explainers.bases.image import PixelBatch
from hf_serve.handlers.explainers.bases.text import TokenBatch
from hf_serve.handlers.explainers.page import render
from hf_serve.handlers.types.request import Request
from tests.handlers.tasks.test_multimodal_embedding import FAMILIES, MODE, write_siglip2
from tests.images import TEXTS
from tests.sentences import Sentence
from tests.serving import Served, differences, explanation_of

Load = Callable[..., Served]
TEXT, PICTURE = "Nina sings in the bar.", {"image": TEXTS[0]}
OTHERS: list[Any] = [None, "a river", {"image": TEXTS[1]}]
METHOD = "input_x_gradient"


def explain(served: Served, inputs: Any, **parameters: Any) -> tuple[int, Any]:
    body = {"inputs": inputs, "parameters": {"resolution": 2, **parameters}}
    ((status, answer),) = served.post(explanation_of(body))
    return status, answer


@pytest.fixture(scope="module", params=["CLIPModel", "SiglipModel"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Served:
    folder = tmp_path_factory.mktemp(request.param) / "model"
    return Served(FAMILIES[request.param][0](folder), MODE)


def score(served: Served, vector: torch.Tensor, other: Any) -> torch.Tensor:
    """Return the cosine of a vector and the one of a text or image; without one, its length."""
    if other is None:
        return vector.norm()
    return torch.cosine_similarity(vector, torch.tensor(served.ask(other)), dim=0)


@pytest.mark.parametrize("other", OTHERS, ids=["length", "text", "image"])
def test_tokens_have_the_product_of_their_vectors_and_gradients(model: Served, other: Any) -> None:
    status, found = explain(model, TEXT, target=other, method=METHOD)
    assert status == 200
    module: Any = model.engine.model.module  # type: ignore[attr-defined]
    vectors: list[torch.Tensor] = []

    def keep(_: Any, __: Any, output: torch.Tensor) -> torch.Tensor:
        vectors.append(output.detach().requires_grad_())
        return vectors[0]

    task: Any = model.engine.task
    ((row,),) = task.encode([task.parse(Request(TEXT))])
    ids = torch.tensor([row.features["input_ids"]])
    with module.module.text_model.embeddings.token_embedding.register_forward_hook(keep):
        vector = module(input_ids=ids)[OUTPUT][0]
    expected = score(model, vector, other)
    (gradient,) = torch.autograd.grad(expected, vectors[0])
    products = (vectors[0] * gradient).sum(-1)[0].tolist()
    assert found["output"] == pytest.approx(float(expected.detach()), abs=1e-5)
    assert found["attributions"] == pytest.approx(products[: len(found["words"])], abs=1e-5)
    assert [TEXT[start:end] for start, end in found["offsets"] if end][-1] == "."


@pytest.mark.parametrize("other", OTHERS, ids=["length", "text", "image"])
def test_patches_have_the_product_of_their_pixels_and_gradients(model: Served, other: Any) -> None:
    status, found = explain(model, PICTURE, target=other, method=METHOD)
    assert status == 200
    task: Any = model.engine.task
    ((row,),) = task.encode([task.parse(Request(PICTURE))])
    pixels = torch.from_numpy(row.features["pixel_values"])[None].requires_grad_()
    module: Any = model.engine.model.module  # type: ignore[attr-defined]
    expected = score(model, module(pixel_values=pixels)[OUTPUT][0], other)
    (gradient,) = torch.autograd.grad(expected, pixels)
    half = pixels.shape[-1] // 2
    products = (pixels * gradient)[0].detach().unfold(1, half, half).unfold(2, half, half)
    assert found["output"] == pytest.approx(float(expected.detach()), abs=1e-5)
    assert np.allclose(found["attributions"], products.sum(dim=(0, 3, 4)), atol=1e-4)


@pytest.mark.parametrize(
    ("inputs", "methods"),
    [
        (TEXT, methods_for(TokenBatch, gradients=True)),
        (PICTURE, methods_for(PixelBatch, gradients=True)),
    ],
    ids=["text", "image"],
)
def test_an_input_has_the_methods_of_its_kind(
    served: Load, inputs: Any, methods: list[str]
) -> None:
    every = served(MODE).engine.describe().explanation["method"]["enum"][:-1]
    assert {*methods} < {*every}
    for method in every:
        settings = {"method": method, "n_samples": 1, "n_steps": 1, "granularity": "word"}
        status, found = explain(served(MODE), inputs, target="river", **settings)
        assert status == (200 if method in methods else 422)
        assert method in methods or found["message"] == Sentence(method, "feature_ablation")


def test_texts_and_images_of_a_batch_are_explained_as_alone(model: Served) -> None:
    bodies = [
        {"inputs": inputs, "parameters": {"resolution": 2, "target": other}}
        for inputs in (TEXT, PICTURE, "a red square")
        for other in OTHERS
    ]
    wrong = {"inputs": TEXT, "parameters": {"target": {"image": "?"}}}
    first, refused, *others = model.post(*map(explanation_of, (bodies[0], wrong, *bodies[1:])))
    assert refused[0] == 400
    for body, (status, found) in zip(bodies, (first, *others), strict=True):
        ((_, alone),) = model.post(explanation_of(body))
        assert status == 200
        assert not differences(found, alone, 2e-3)
        assert found["method"] == f"{'layer_' * ('words' in found)}integrated_gradients"


def test_the_dimensions_that_are_kept_are_compared(model: Served) -> None:
    _, found = explain(model, TEXT, target=PICTURE, dimensions=4, method="feature_ablation")
    first, second = (np.array(model.ask(each, dimensions=4)) for each in (TEXT, PICTURE))
    cosine = first @ second / np.linalg.norm(first) / np.linalg.norm(second)
    assert found["target"] == {"label": "image", "score": pytest.approx(cosine, abs=1e-5)}


def test_the_page_shows_the_words_or_the_picture(served: Load) -> None:
    for inputs, shown in ((TEXT, '<span class="mark'), (PICTURE, 'src="data:image/png')):
        _, found = explain(served(MODE), inputs, target="river")
        assert shown in render([found], targets.get(MODE).views).decode()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("inputs", "target", "status", "facts"),
    [
        (TEXT, 5, 400, ["target"]),
        (TEXT, " ", 400, ["target"]),
        (TEXT, {"audio": "a"}, 400, ["target"]),
        (TEXT, {"text": "a", "image": TEXTS[0]}, 422, ["target"]),
        (PICTURE, f"data:image/png;base64,{TEXTS[0]}", 400, ["target"]),
    ],
)
def test_wrong_targets_are_refused_with_a_reason(
    served: Load, inputs: Any, target: Any, status: int, facts: list[str]
) -> None:
    found, answer = explain(served(MODE), inputs, target=target)
    assert (found, answer["message"]) == (status, Sentence(*facts))


def test_token_ids_have_no_words_to_explain(served: Load) -> None:
    (found,) = served(MODE).engine.explain([Request([0, 5, 2])])
    assert isinstance(found, BadRequest)
    assert str(found) == Sentence()


def test_images_of_any_proportions_are_compared_with_and_not_explained(tmp_path: Path) -> None:
    model = Served(write_siglip2(tmp_path / "model"), MODE)
    assert explain(model, TEXT, target=PICTURE)[0] == 200
    status, answer = explain(model, PICTURE, target=TEXT)
    assert (status, answer["message"]) == (422, Sentence("inputs", "target"))
