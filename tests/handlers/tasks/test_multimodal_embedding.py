"""Vectors of texts and images: as by transformers, in any company, in each protocol's bodies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers import AutoTokenizer, PreTrainedTokenizerFast
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.siglip2.image_processing_pil_siglip2 import Siglip2ImageProcessorPil

from hf_serve.handlers.config.handler_section import HandlerSection
from hf_serve.handlers.errors import WrongCheckpoint
from hf_serve.handlers.http.request import HttpRequest
from hf_serve.handlers.tasks import load
from tests import tiny, vision_families
from tests.images import FILES, IMAGES, TEXTS, raw
from tests.sentences import Sentence, refused
from tests.serving import Served, differences
from tests.tiny_tokenizers import write_siglip

MODE = "multimodal_embedding"
WORDS = ["a red square", "Nina sings in the bar. " * 40, "river"]
URIS = [f"data:image/png;base64,{each}" for each in TEXTS]


@pytest.fixture
def model(served: Callable[..., Served]) -> Served:
    return served(MODE)


def write_siglip2(folder: Path) -> Path:
    """Write a SigLIP 2 for images of any proportions, whose patches are padded to 16."""
    folder.mkdir()
    write_siglip(folder)
    torch.manual_seed(3)
    vision = {**vision_families.VIT, "num_patches": 16}
    config = transformers.Siglip2Config(
        vision_config=vision, text_config=vision_families.SIGLIP_TEXT
    )
    module = transformers.Siglip2Model(config)
    with torch.no_grad():
        for weight in module.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    module.save_pretrained(folder)
    Siglip2ImageProcessorPil(patch_size=8, max_num_patches=16).save_pretrained(folder)
    return folder


FAMILIES: dict[str, tuple[Callable[[Path], Path], Any]] = {
    "CLIPModel": (lambda folder: tiny.write(folder, MODE), CLIPImageProcessorPil),
    "SiglipModel": (
        lambda folder: vision_families.write(folder, "SiglipModel"),
        transformers.models.siglip.image_processing_pil_siglip.SiglipImageProcessorPil,
    ),
    "Siglip2Model": (write_siglip2, Siglip2ImageProcessorPil),
}


def reference(folder: Path, family: str) -> list[np.ndarray[Any, Any]]:
    """Return the vectors that transformers makes of each text and of each image alone."""
    module = getattr(transformers, family).from_pretrained(folder).eval()
    kind = AutoTokenizer if family == "CLIPModel" else PreTrainedTokenizerFast
    tokenizer = kind.from_pretrained(folder)
    processor = FAMILIES[family][1].from_pretrained(folder)
    width: dict[str, Any] = (
        {"max_length": 128}
        if family == "CLIPModel"
        else {
            "max_length": 64,
            "padding": "max_length",
        }
    )
    texts = [tokenizer(each, truncation=True, return_tensors="pt", **width) for each in WORDS]
    pixels = [processor(images=each, return_tensors="pt") for each in IMAGES]
    with torch.no_grad():
        found = [
            *(module.get_text_features(**each) for each in texts),
            *(module.get_image_features(**each) for each in pixels),
        ]
    return [each.pooler_output[0].numpy() for each in found]


@pytest.mark.parametrize("family", FAMILIES)
def test_vectors_are_those_of_transformers_alone_and_in_company(
    tmp_path: Path, family: str
) -> None:
    folder = FAMILIES[family][0](tmp_path / "model")
    expected = reference(folder, family)
    items = [*WORDS, *({"image": each} for each in TEXTS)]
    model = Served(folder, MODE)
    order = np.random.default_rng(0).permutation(len(items))
    together = model.ask([items[number] for number in order])
    for number, found in zip(order, together, strict=True):
        np.testing.assert_allclose(found, expected[number], rtol=1e-4, atol=1e-5)
        assert not differences(model.ask(items[number]), found, 1e-5)


def test_texts_share_a_forward_and_images_another(
    model: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[tuple[str, int]] = []
    original = model.engine.model.forward

    def counted(batch: Any) -> Any:
        ((name, first), *_) = batch.items()
        rows.append((name, len(first)))
        return original(batch)

    monkeypatch.setattr(model.engine.model, "forward", counted)
    model.ask(["a film", {"image": TEXTS[0]}, "a bar", {"image": TEXTS[1]}])
    assert sorted(rows) == [("input_ids", 2), ("pixel_values", 2)]


def test_a_wrong_item_has_its_error_and_its_neighbours_their_vectors(model: Served) -> None:
    items = ["river", {"image": "?"}, {"image": TEXTS[0]}, "", {"text": "river"}]
    first, bad, image, empty, again = model.ask(items)
    assert first == again != image
    assert [each["code"] for each in (bad, empty)] == [400, 400]


def test_a_file_is_the_body_of_a_request(model: Served) -> None:
    expected = model.ask({"image": TEXTS[0]})
    assert model.post(raw(FILES[0], "image/png")) == [(200, expected)]


@pytest.mark.parametrize(
    ("inputs", "status", "facts"),
    [
        (5, 400, ["inputs"]),
        ({"audio": "a"}, 400, ["inputs"]),
        (URIS[0], 400, ["inputs", "image"]),
        ({"text": "river", "image": TEXTS[0]}, 422, ["inputs"]),
        ({"image": TEXTS[0][:80]}, 400, []),
        ({"image": "http://127.0.0.1/a.png"}, 422, ["allowed_media_hosts"]),
        ({"image": "A" * 30_000_000}, 413, ["inputs"]),
    ],
)
def test_wrong_inputs_are_refused_with_a_reason(
    model: Served, inputs: Any, status: int, facts: list[str]
) -> None:
    assert model.refuse(inputs) == (status, Sentence(*facts))


def test_a_text_that_is_too_long_is_cut_or_refused(model: Served) -> None:
    assert model.refuse(WORDS[1], truncate=False) == (413, Sentence("128"))
    start = model.ask(WORDS[1], max_length=8)
    assert start == model.ask("Nina sings in the bar. " * 3, max_length=8)
    assert start != model.ask(WORDS[1], max_length=8, truncation_direction="left")
    assert model.refuse(WORDS[1], max_length=2) == (400, Sentence("max_length", 2))


def test_vectors_have_the_dimensions_that_the_checkpoint_names(tmp_path: Path) -> None:
    folder = tiny.write(tmp_path / "model", MODE)
    whole = Served(folder, MODE).ask(WORDS[0])
    (folder / "config_sentence_transformers.json").write_text('{"truncate_dim": 6}')
    model = Served(folder, MODE)
    assert not differences(model.ask(WORDS[0]), whole[:6], 1e-5)
    assert not differences(model.ask(WORDS[0], dimensions=len(whole)), whole, 1e-5)


def test_more_dimensions_than_the_vectors_have_are_refused(model: Served) -> None:
    assert model.refuse(WORDS[0], dimensions=33) == (400, Sentence("dimensions", 33, 32))


BODIES: dict[str, tuple[str, Any, list[Any]]] = {
    "Jina": (
        "v1/embeddings",
        {"input": ["river", {"image": TEXTS[0]}, {"text": "bar"}, {"image": URIS[1]}]},
        ["river", {"image": TEXTS[0]}, "bar", {"image": TEXTS[1]}],
    ),
    "infinity": (
        "embeddings",
        {"input": URIS[:2], "modality": "image", "model": "any"},
        [{"image": each} for each in TEXTS[:2]],
    ),
    "vLLM": (
        "v1/embeddings",
        {
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "image_url", "image_url": {"url": URIS[0]}},
                        {"type": "text", "text": ""},
                    ],
                }
            ]
        },
        [{"image": TEXTS[0]}],
    ),
    "Cohere's images": (
        "v2/embed",
        {"images": URIS[:2], "input_type": "image", "model": "any"},
        [{"image": each} for each in TEXTS[:2]],
    ),
    "Cohere's inputs": (
        "v2/embed",
        {
            "inputs": [
                {"content": [{"type": "text", "text": "river"}]},
                {"content": [{"type": "image_url", "image_url": {"url": URIS[0]}}]},
            ],
            "input_type": "search_document",
        },
        ["river", {"image": TEXTS[0]}],
    ),
}


@pytest.mark.parametrize("form", BODIES)
def test_the_bodies_of_embedding_servers_have_the_same_vectors(model: Served, form: str) -> None:
    path, body, inputs = BODIES[form]
    ((status, answer),) = model.post(HttpRequest({"body": body}, {"url_path": path}))
    assert status == 200
    found = (
        answer["embeddings"]["float"]
        if "embeddings" in answer
        else [each["embedding"] for each in answer["data"]]
    )
    assert not differences(found, model.ask(inputs), 1e-5)


def word_ids(model: Served) -> list[int]:
    """Return the token ids of a word."""
    task: Any = model.engine.task
    ids: list[int] = task.tokenizer("river").input_ids
    return ids


def test_token_ids_are_read_as_the_text_that_has_them(model: Served) -> None:
    ids = word_ids(model)
    body = {"input": [ids, "river"]}
    ((_, answer),) = model.post(HttpRequest({"body": body}, {"url_path": "v1/embeddings"}))
    first, second = (each["embedding"] for each in answer["data"])
    assert not differences(first, second, 1e-6)


def test_tokens_are_those_of_the_texts(model: Served) -> None:
    body = {"input": ["river", {"image": TEXTS[0]}]}
    ((_, answer),) = model.post(HttpRequest({"body": body}, {"url_path": "v1/embeddings"}))
    assert answer["usage"]["prompt_tokens"] == len(word_ids(model))


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"messages": [{"content": "a"}] * 2}, 422),
        ({"messages": [{"content": 5}]}, 400),
        ({"messages": [{"content": [{"type": "image_url", "image_url": 5}]}]}, 400),
        ({"messages": [{"content": [{"type": "audio_url"}]}]}, 422),
        ({"messages": [{"content": "a"}], "input": "a"}, 400),
        ({"input": [[5, 6_000]]}, 400),
    ],
)
def test_wrong_messages_and_token_ids_are_refused(model: Served, body: Any, status: int) -> None:
    ((found, answer),) = model.post(HttpRequest({"body": body}, {"url_path": "v1/embeddings"}))
    assert (found, answer["error"]["message"]) == (status, Sentence())


@pytest.mark.parametrize(
    "mode", ["sentence_embedding", "feature_extraction", "image_feature_extraction"]
)
def test_modes_of_texts_or_images_alone_refuse_the_model_by_its_config(
    tmp_path: Path, mode: str
) -> None:
    folder = tiny.write(tmp_path / "model", MODE)
    with refused(WrongCheckpoint, "clip", MODE):
        load(folder, HandlerSection(mode=mode))


def test_a_model_of_another_family_is_refused_by_its_config(tmp_path: Path) -> None:
    folder = tiny.write(tmp_path / "model", "image_classification")
    with refused(WrongCheckpoint, "vit"):
        load(folder, HandlerSection(mode=MODE))
