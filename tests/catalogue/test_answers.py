"""Answers of each entry of the catalogue are those of the library that defines them.

Each text is asked alone and in the company of others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hf_serve.scripts.hub.catalogue import CatalogueEntry, read_catalogue
from tests.catalogue import expected
from tests.catalogue.checkpoints import write
from tests.catalogue.pipelines import MODES, Reference, comparable
from tests.serving import Served, differences

SERVED = {name: entry for name, entry in read_catalogue().items() if not entry.refused}
KEPT = expected.read()
OF_TRANSFORMERS = [
    name
    for name, entry in SERVED.items()
    if entry.reference == "transformers" and entry.mode in MODES
]
# One entry of each kind of model; a change of the kit that harms an entry harms one of these.
REPRESENTATIVES = (
    *("bge", "multilingual-e5-small", "nomic-embed-text", "embeddinggemma", "qwen3-embedding"),
    *("bge-m3", "sentence-t5", "splade", "gte-moderncolbert", "ms-marco-minilm", "mxbai-rerank-v1"),
    *("go-emotions", "bart-mnli", "bert-ner", "roberta-squad2", "opus-mt", "qwen3", "gemma-3"),
    *("vit", "rt-detr", "segformer", "clip", "wav2vec2", "ast"),
    *("qwen3-reranker", "ettin-reranker", "potion", "opensearch-sparse-doc-v3", "gliner"),
    *("colqwen2", "gliclass"),
)
UNKNOWN = "\ufffd"
# Images are rescaled in float32, and the random weights of these models amplify its rounding.
TOLERANCES = {"grounding-dino": 1e-2, "mm-grounding-dino": 1e-2}


def each_entry(names: Iterable[str]) -> list[Any]:
    """Return entries as a test's parameter; those that represent no others are nightly."""
    return [
        pytest.param(name, marks=() if name in REPRESENTATIVES else pytest.mark.nightly)
        for name in names
    ]


@pytest.mark.parametrize("name", each_entry(name for name in SERVED if name in KEPT))
def test_answers_are_the_kept_ones(name: str, tmp_path: Path) -> None:
    entry = SERVED[name]
    folder = write(entry, tmp_path / name)
    mode = str(entry.mode)
    compare = COMPARISONS.get((entry.reference, mode), COMPARISONS[mode])
    compare(Served(folder, mode, **entry.handler), entry, KEPT[name])


@pytest.mark.parametrize("name", each_entry(OF_TRANSFORMERS))
def test_answers_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    entry = SERVED[name]
    folder = write(entry, tmp_path / name)
    model = Served(folder, str(entry.mode), **entry.handler)
    reference = Reference(str(entry.mode), folder, model)
    bodies = [{"inputs": ours, "parameters": reference.parameters} for ours, _ in reference.pairs]
    wanted = [reference.ask(theirs) for _, theirs in reference.pairs]
    for found, answer in zip(_alone_and_together(model, bodies), wanted * 2, strict=True):
        if UNKNOWN not in str(answer):  # Bytes that are no characters are decoded one by one.
            assert not differences(*comparable(found, answer), TOLERANCES.get(name, 1e-4))


def _vectors(model: Served, entry: CatalogueEntry, answers: Any) -> None:
    bodies = [
        {"inputs": text, "parameters": {"prompt_name": name} if name else {}}
        for text, name in expected.embedding_calls(entry)
    ]
    for found, wanted in zip(_alone_and_together(model, bodies), answers * 2, strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-4 * max(1.0, np.abs(wanted).max()))


def _weights(model: Served, _: CatalogueEntry, answers: Any) -> None:
    bodies = [{"inputs": text} for text in expected.TEXTS]
    for found, wanted in zip(_alone_and_together(model, bodies), answers * 2, strict=True):
        weights = {each["index"]: each["value"] for each in found}
        assert {place: weights[place] for place, _ in wanted} == {
            place: pytest.approx(value, abs=1e-4) for place, value in wanted
        }


def _scores(model: Served, _: CatalogueEntry, answers: Any) -> None:
    rankings = [
        {"inputs": {"query": query, "texts": list(expected.TEXTS)}} for query in expected.QUERIES
    ]
    pairs = [
        {"inputs": {"query": query, "texts": [text]}}
        for query in expected.QUERIES
        for text in expected.TEXTS
    ]
    alone = [model.post(body)[0][1][0]["score"] for body in pairs]
    together = [reply for _, reply in model.post(*rankings)]
    for number, wanted in enumerate(answers):
        ranked = {each["index"]: each["score"] for each in together[number]}
        count = len(wanted)
        np.testing.assert_allclose([ranked[each] for each in range(count)], wanted, atol=1e-3)
        np.testing.assert_allclose(alone[number * count :][:count], wanted, atol=1e-3)


def _of_tokens(model: Served, _: CatalogueEntry, answers: Any) -> None:
    chosen = {"return_sparse": True, "return_colbert_vecs": True, "max_length": 64}
    bodies = [{"inputs": text, "parameters": chosen} for text in expected.TEXTS]
    for found, wanted in zip(_alone_and_together(model, bodies), answers * 2, strict=True):
        np.testing.assert_allclose(found["dense_vecs"], wanted["dense_vecs"], atol=1e-4)
        weights = {str(each["index"]): each["value"] for each in found["lexical_weights"]}
        assert weights == pytest.approx(wanted["lexical_weights"], abs=1e-4)
        vectors = expected.some(found["colbert_vecs"])
        assert vectors[0] == wanted["colbert_vecs"][0]
        np.testing.assert_allclose(vectors[1:], wanted["colbert_vecs"][1:], atol=1e-4)


def _entities(model: Served, _: CatalogueEntry, answers: Any) -> None:
    bodies = [
        {"inputs": text, "parameters": {"labels": labels, **settings}}
        for text, labels, settings in expected.EXTRACTIONS
    ]
    for found, kept in zip(_alone_and_together(model, bodies), answers * 2, strict=True):
        places = {(each["start"], each["end"], each["entity_group"]): each for each in found}
        wanted = {tuple(place): score for *place, score in kept}
        assert sorted(places) == sorted(wanted)
        scores = [places[place]["score"] for place in wanted]
        np.testing.assert_allclose(scores, list(wanted.values()), atol=1e-3)


def _labels(model: Served, _: CatalogueEntry, answers: Any) -> None:
    bodies = [
        {"inputs": text, "parameters": {"candidate_labels": labels, "multi_label": multi_label}}
        for text, labels, multi_label in expected.CLASSIFICATIONS
    ]
    for found, wanted in zip(_alone_and_together(model, bodies), answers * 2, strict=True):
        scores = dict(zip(found["labels"], found["scores"], strict=True))
        chosen = [scores[label] for label, _ in wanted]
        np.testing.assert_allclose(chosen, [score for _, score in wanted], atol=1e-3)


# By the mode, or by the library that defines the answers and the mode.
COMPARISONS: dict[str | tuple[str, str], Callable[[Served, CatalogueEntry, Any], None]] = {
    ("FlagEmbedding", "sentence_embedding"): _of_tokens,
    "sentence_embedding": _vectors,
    "sparse_embedding": _weights,
    "sentence_ranking": _scores,
    "late_interaction": _scores,
    "zero_shot_token_classification": _entities,
    "zero_shot_classification": _labels,
}


def _alone_and_together(model: Served, bodies: list[Any]) -> list[Any]:
    """Return the answers to bodies, one by one and then in one batch."""
    replies = [model.post(body)[0] for body in bodies] + model.post(*bodies)
    assert {status for status, _ in replies} == {200}, replies
    return [answer for _, answer in replies]
