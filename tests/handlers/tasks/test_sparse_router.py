"""Routers of sparse encoders: what is damaged or not served is named.

`tests/reference/test_sparse.py` compares the weights with sentence-transformers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hf_serve.handlers.errors import WrongCheckpoint
from hf_serve.scripts.hub.checkpoint_files import config_files
from tests.reference.sparse import MODE, ROUTER, write
from tests.sentences import Sentence, refused
from tests.serving import Served, explanation_of


@pytest.fixture
def router(tmp_path: Path) -> Path:
    return write(tmp_path / "model", "router")


@pytest.mark.parametrize(
    ("structure", "facts"),
    [
        ({"document": ["", "document_1_SpladePooling"]}, ["SpladePooling", "query"]),
        ({**ROUTER["structure"], "query": [""]}, ["query"]),
    ],
)
def test_other_routes_are_refused(router: Path, structure: Any, facts: list[str]) -> None:
    (router / "router_config.json").write_text(json.dumps({**ROUTER, "structure": structure}))
    with refused(WrongCheckpoint, "router_config.json", *facts):
        Served(router, MODE)


def test_missing_weights_of_queries_are_named(router: Path) -> None:
    (router / "query_0_SparseStaticEmbedding" / "model.safetensors").unlink()
    with refused(WrongCheckpoint, "query_0_SparseStaticEmbedding/model.safetensors"):
        Served(router, MODE)


def test_a_query_is_cut_or_refused_and_has_no_explanation(router: Path) -> None:
    model = Served(router, MODE, max_length=4)
    query = {"input_type": "query"}
    short, long = "Ada sings", "Ada sings in the bar, and Tom walks in London"
    assert len(model.ask(long, **query)) <= 4
    assert model.refuse(long, truncate=False, **query) == (413, Sentence("tokens", 4))
    assert model.ask(short, top_k=1, **query)[0] == model.ask(short, **query)[0]
    ((status, answer),) = model.post(explanation_of({"inputs": short, "parameters": query}))
    assert (status, answer["message"]) == (422, Sentence("query", "input_type: document"))


def test_a_text_of_no_route_is_refused(router: Path) -> None:
    model = Served(router, MODE)
    assert model.ask("Ada sings", task="retrieval.query") == model.ask(
        "Ada sings", input_type="search_query"
    )
    refusal = model.refuse("Ada sings", input_type="classification")
    assert refusal == (400, Sentence("input_type", "classification", "query", "document"))


def test_the_files_of_a_router_are_downloaded(router: Path) -> None:
    names = [path.relative_to(router).as_posix() for path in router.rglob("*") if path.is_file()]
    chosen = config_files(names, "org/name")
    assert "router_config.json" in chosen
    assert "query_0_SparseStaticEmbedding/model.safetensors" in chosen
    assert "document_1_SpladePooling/config.json" in chosen
