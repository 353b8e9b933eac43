"""Queries and pages: vectors and scores of transformers' processors and models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForPreTraining

from hf_serve.handlers.checkpoints.checkpoint import Checkpoint
from hf_serve.handlers.config.handler_section import HandlerSection
from hf_serve.handlers.errors import WrongCheckpoint
from hf_serve.handlers.http.request import HttpRequest
from hf_serve.handlers.tasks import load
from tests.images import FILES, IMAGES, TEXTS, raw
from tests.sentences import Sentence, refused
from tests.serving import Served, differences
from tests.tiny_multimodal import (
    write_colmodernvbert,
    write_colpali,
    write_colqwen2,
    write_qwen2_vl,
)

MODE = "late_interaction"
QUERIES = ["Who sings in the bar?", "the river", "Where does Ada live now?"]
FAMILIES: dict[str, Callable[[Path], None]] = {
    "ColPali": write_colpali,
    "ColQwen2": write_colqwen2,
    "ColModernVBert": write_colmodernvbert,
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The checkpoints of the families."""
    root = tmp_path_factory.mktemp("pages")

    def folder(family: str) -> Path:
        path = root / family
        if not path.is_dir():
            path.mkdir()
            FAMILIES[family](path)
        return path

    return folder


@pytest.fixture(scope="module")
def model(folders: Callable[[str], Path]) -> Served:
    """A ColQwen2."""
    return Served(folders("ColQwen2"), MODE)


def reference(folder: Path) -> tuple[list[torch.Tensor], list[torch.Tensor], Any]:
    """Return the vectors of queries and pages alone by transformers, and the scores."""
    module = AutoModelForPreTraining.from_pretrained(folder).eval()
    processor: Any = Checkpoint.read(folder, HandlerSection(mode=MODE)).processor
    batches = [
        *(processor.process_queries(text=[each], return_tensors="pt") for each in QUERIES),
        *(processor.process_images(images=[each], return_tensors="pt") for each in IMAGES),
    ]
    with torch.no_grad():
        vectors = [module(**batch).embeddings[0] for batch in batches]
    queries, pages = vectors[: len(QUERIES)], vectors[len(QUERIES) :]
    scores = [
        [float(processor.score_retrieval([query], [page])[0, 0]) for page in pages]
        for query in queries
    ]
    return queries, pages, scores


@pytest.mark.parametrize("family", FAMILIES)
def test_vectors_and_scores_are_those_of_transformers(
    folders: Callable[[str], Path], family: str
) -> None:
    folder = folders(family)
    queries, pages, scores = reference(folder)
    model = Served(folder, MODE)
    items = [*QUERIES, *({"image": each} for each in TEXTS)]
    order = np.random.default_rng(1).permutation(len(items))
    expected = [*queries, *pages]
    for number, found in zip(order, model.ask([items[each] for each in order]), strict=True):
        np.testing.assert_allclose(found, expected[number].numpy(), rtol=1e-3, atol=1e-4)
    ranked = model.ask([{"query": each, "images": TEXTS} for each in QUERIES])
    for each, wanted in zip(ranked, scores, strict=True):
        by_page = sorted(each, key=lambda page: page["index"])
        np.testing.assert_allclose([page["score"] for page in by_page], wanted, rtol=1e-3)
        assert [page["score"] for page in each] == sorted(
            (page["score"] for page in each), reverse=True
        )


def test_a_file_is_a_page_and_documents_may_be_images(model: Served) -> None:
    assert model.post(raw(FILES[0], "image/png")) == [(200, model.ask({"image": TEXTS[0]}))]
    pages = [{"image": each} for each in TEXTS[:2]]
    body = {"query": QUERIES[0], "documents": pages, "top_n": 1}
    ((status, answer),) = model.post(HttpRequest({"body": body}, {"url_path": "v2/rerank"}))
    (best,) = model.ask({"query": QUERIES[0], "images": TEXTS[:2]}, top_n=1)
    assert (status, answer["results"][0]["index"]) == (200, best["index"])
    assert not differences(answer["results"][0]["relevance_score"], best["score"], 1e-6)


def test_a_broken_page_fails_alone(model: Served) -> None:
    first, bad, again = model.ask([{"image": TEXTS[0]}, {"image": "?"}, {"image": TEXTS[0]}])
    assert (first, bad["code"]) == (again, 400)


@pytest.mark.parametrize(
    ("inputs", "parameters", "status", "facts"),
    [
        (5, {}, 400, ["inputs"]),
        ("an <|image_pad|> here", {}, 400, ["<|image_pad|>"]),
        ({"query": "a", "documents": ["a text"]}, {}, 422, ["documents"]),
        ({"query": "a", "images": []}, {}, 400, ["images"]),
        ({"query": "a", "pages": []}, {}, 400, ["pages"]),
        ({"query": "a", "images": TEXTS[:1] * 129}, {}, 413, ["129"]),
        ({"query": "word " * 300, "images": TEXTS[:1]}, {}, 413, ["256"]),
        ("a", {"prompt_name": "document"}, 400, ["prompt_name", "document"]),
        (
            {"query": "a", "images": TEXTS[:1]},
            {"return_documents": True},
            422,
            ["return_documents"],
        ),
    ],
)
def test_wrong_inputs_are_refused_with_a_reason(
    model: Served, inputs: Any, parameters: dict[str, Any], status: int, facts: list[str]
) -> None:
    assert model.refuse(inputs, **parameters) == (status, Sentence(*facts))


@pytest.mark.parametrize("mode", [MODE, "sentence_embedding", "feature_extraction"])
def test_modes_of_vectors_refuse_a_vision_language_model_by_its_config(
    tmp_path: Path, mode: str
) -> None:
    write_qwen2_vl(tmp_path, {}, 0)
    with refused(WrongCheckpoint, "qwen2_vl", "colqwen2"):
        load(tmp_path, HandlerSection(mode=mode))


def test_a_model_of_pages_makes_no_embedding_of_a_text(folders: Callable[[str], Path]) -> None:
    with refused(WrongCheckpoint, "colpali", MODE):
        load(folders("ColPali"), HandlerSection(mode="sentence_embedding"))
