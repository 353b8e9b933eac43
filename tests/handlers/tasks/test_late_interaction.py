"""Late interaction: the forms of its inputs, rankings by vectors, and what checkpoints lack."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hf_serve.handlers.errors import WrongCheckpoint
from hf_serve.handlers.http.request import HttpRequest
from hf_serve.handlers.types.embeddings import max_similarity
from tests.reference.late_interaction import MODE, SETTINGS, write
from tests.samples import FINE, LONG, ODD
from tests.sentences import Sentence, refused
from tests.serving import Served, differences

Load = Callable[..., Served]
QUERY = "Who sings in Paris?"
TEXTS = [FINE, "Nina sings in Paris.", ODD, "dull"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Served:
    return Served(write(tmp_path_factory.mktemp("colbert") / "model", "expanded"), MODE)


def test_texts_are_ranked_by_the_vectors_that_each_has_alone(model: Served) -> None:
    query = np.array(model.ask(QUERY, prompt_name="query"))
    scores = [max_similarity(query, np.array(model.ask(text))) for text in TEXTS]
    ranked = model.ask({"query": QUERY, "texts": TEXTS})
    expected = [
        {"index": number, "score": scores[number]}
        for number in sorted(range(len(TEXTS)), key=lambda number: -scores[number])
    ]
    assert not differences(ranked, expected, 1e-4)
    best = model.ask({"query": QUERY, "documents": TEXTS}, top_n=1, return_documents=True)
    assert best == [{**ranked[0], "text": TEXTS[ranked[0]["index"]]}]


def test_a_query_is_filled_up_and_vectors_of_punctuation_are_left_out(model: Served) -> None:
    assert len(model.ask("dull", prompt_name="query")) == SETTINGS["query_length"]
    assert len(model.ask("dull.,:")) == len(model.ask("dull"))


def test_rerankers_clients_are_answered(model: Served) -> None:
    body = {"query": QUERY, "texts": TEXTS, "raw_scores": False, "return_text": True}
    ((status, ranked),) = model.post(HttpRequest({"body": body}, {"url_path": "rerank"}))
    assert status == 200
    own = model.ask({"query": QUERY, "texts": TEXTS}, return_documents=True)
    assert not differences(ranked, own, 1e-5)


@pytest.mark.parametrize(
    ("inputs", "parameters", "status", "facts"),
    [
        ({"query": QUERY}, {}, 400, ["query", "inputs"]),
        (5, {}, 400, ["inputs"]),
        ({"query": "", "texts": TEXTS}, {}, 400, ["query"]),
        ({"query": QUERY, "texts": [FINE, 5]}, {}, 400, ["texts[1]"]),
        ({"query": QUERY, "texts": []}, {}, 400, ["texts"]),
        (LONG, {"truncate": False}, 413, []),
        (LONG, {"truncate": False, "prompt_name": "query"}, 413, []),
        (FINE, {"prompt_name": "passage"}, 400, ["prompt_name"]),
    ],
)
def test_a_wrong_request_is_refused_and_its_neighbours_are_answered(
    model: Served, inputs: Any, parameters: dict[str, Any], status: int, facts: list[str]
) -> None:
    fine = {"inputs": FINE, "parameters": {}}
    replies = model.post(fine, {"inputs": inputs, "parameters": parameters}, fine)
    assert [reply[0] for reply in replies] == [200, status, 200]
    assert replies[1][1]["message"] == Sentence(*facts)
    assert not differences(replies[0][1], model.ask(FINE), 1e-5)


@pytest.mark.parametrize(
    ("name", "change", "facts"),
    [
        ("config_sentence_transformers.json", {"query_prefix": "[Q] "}, ["[Q] "]),
        ("config_sentence_transformers.json", {"query_length": 0}, ["query_length"]),
        ("1_Dense/config.json", {"in_features": 31}, [31, 32]),
        ("artifact.metadata", {"dim": 8}, ["linear.weight"]),
    ],
)
def test_a_checkpoint_that_is_damaged_is_refused(
    tmp_path: Path, name: str, change: dict[str, Any], facts: list[object]
) -> None:
    folder = write(tmp_path / "model", "expanded")
    path = folder / name
    content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else SETTINGS
    tokens = {"query_token_id": "moon", "doc_token_id": "fox"} if not path.is_file() else {}
    path.write_text(json.dumps({**content, **tokens, **change}), encoding="utf-8")
    with refused(WrongCheckpoint, *facts):
        Served(folder, MODE)


def test_a_checkpoint_with_a_pooling_is_no_late_interaction_model(tmp_path: Path) -> None:
    folder = write(tmp_path / "model", "expanded")
    entries = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
    pooling = {
        "idx": 1,
        "name": "1",
        "path": "1_Pooling",
        "type": "sentence_transformers.models.Pooling",
    }
    (folder / "modules.json").write_text(json.dumps([entries[0], pooling]), encoding="utf-8")
    with refused(WrongCheckpoint, "Pooling"):
        Served(folder, MODE)
