"""Checkpoints of GLiNER, GLiNER2 and GLiClass, and the requests that their libraries answer."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests import tiny_gliner
from tests.reference.rows import DULL, FINE, LONG, ODD, PEOPLE
from tests.tiny_gliner import DEBERTA, Kind

MODE = "zero_shot_token_classification"
TEXTS = (FINE, ODD, PEOPLE, DULL, LONG, "Nina-Vogel's e-mail: nina_v@example.org!")
LABELS = (["person", "city"], ["music", "unbelievable film", "who sings in the bar"], ["x"])
SETTINGS: tuple[Mapping[str, Any], ...] = (
    {},
    {"threshold": 0.3},
    {"threshold": 0.3, "flat_ner": False},
    {"threshold": 0.4, "multi_label": True},
    {"threshold": 0.4, "flat_ner": False, "multi_label": True},
)
KINDS = {
    "deberta": Kind("DebertaV2", {"hidden_size": 24}, DEBERTA),
    "modernbert": Kind(
        "ModernBert",
        {"hidden_size": 32, "num_rnn_layers": 0, "max_width": 5},
        {"global_attn_every_n_layers": 2, "local_attention": 32},
        most=0.2,
    ),
    "words": Kind("DebertaV2", {"hidden_size": 32, "span_mode": "token_level"}, DEBERTA),
    "mean": Kind(
        "Bert",
        {"hidden_size": 24, "subtoken_pooling": "mean", "embed_ent_token": False, "max_width": 4},
    ),
    "early": Kind("Bert", {"hidden_size": 32, "span_mode": "marker"}, early=True),
}

CLASSIFIED: tuple[Mapping[str, Any], ...] = ({}, {"multi_label": True})
GLICLASS_KINDS = {
    "gliclass-deberta": Kind(
        "DebertaV2",
        {"prompt_first": True, "pooling_strategy": "avg", "hidden_size": 48},
        DEBERTA,
    ),
    "gliclass-modernbert": Kind(
        "ModernBert",
        {
            "prompt_first": True,
            "pooling_strategy": "first",
            "scorer_type": "weighted-dot",
            "class_token_pooling": "average",
            "normalize_features": True,
        },
        {"global_attn_every_n_layers": 2, "local_attention": 32},
        most=0.2,
    ),
    "gliclass-bert": Kind(
        "Bert",
        {
            "prompt_first": False,
            "pooling_strategy": "first",
            "scorer_type": "mlp",
            "extract_text_features": True,
            "embed_class_token": False,
        },
    ),
}

# Each with the seed of its weights: with these, some texts have entities and others have none.
GLINER2_KINDS = {
    "gliner2-deberta": (Kind("DebertaV2", {}, DEBERTA), 2),
    "gliner2-bert": (
        Kind(
            "Bert",
            {"counting_layer": "count_lstm_moe", "token_pooling": "mean", "max_width": 4},
        ),
        11,
    ),
    "gliner2-modernbert": (
        Kind(
            "ModernBert",
            {
                "architecture": "span",
                "counting_layer": "count_lstm",
                "max_width": None,
                "span_head": {"max_width": 5, "span_mode": "markerV0", "dropout": 0.1},
            },
            {"global_attn_every_n_layers": 2, "local_attention": 32},
            most=0.2,
        ),
        5,
    ),
}
ADDRESSES = "Mail NINA_V@example.org, @nina or see https://example.org/x?y=1 İzmir नमस्ते"
DESCRIBED = {"person": "name of a human", "city": "a place, also (in) Paris"}
EXTRACTED: tuple[Mapping[str, Any], ...] = (
    {},
    {"threshold": 0.3},
    {"threshold": 0.8, "flat_ner": False},
)


def requests() -> Iterator[tuple[str, list[str], Mapping[str, Any]]]:
    """Yield the text, the labels and the parameters of each request."""
    for number, text in enumerate(TEXTS):
        for place, labels in enumerate(LABELS):
            yield text, labels, SETTINGS[(number + place) % len(SETTINGS)]


def classifications() -> Iterator[tuple[str, list[str], Mapping[str, Any]]]:
    """Yield the text, the labels and the parameters of each request to a GLiClass."""
    for number, text in enumerate(TEXTS):
        for place, labels in enumerate(LABELS[:2]):
            yield text, labels, CLASSIFIED[(number + place) % 2]


def extractions() -> Iterator[tuple[str, list[str] | dict[str, str], Mapping[str, Any]]]:
    """Yield the text, the labels and the parameters of each request to a GLiNER2."""
    for number, text in enumerate((*TEXTS, ADDRESSES)):
        asked: list[list[str] | dict[str, str]] = [*LABELS, DESCRIBED]
        for place, labels in enumerate(asked):
            yield text, labels, EXTRACTED[(number + place) % len(EXTRACTED)]


def write(folder: Path, name: str) -> Path:
    """Write the checkpoint of a kind."""
    if name in GLINER2_KINDS:
        kind, seed = GLINER2_KINDS[name]
        return tiny_gliner.write_gliner2(folder, kind, seed)
    if name in GLICLASS_KINDS:
        return tiny_gliner.write_gliclass(folder, GLICLASS_KINDS[name], seed=len(name))
    return tiny_gliner.write(folder, KINDS[name], seed=len(name))


def digest(folder: Path) -> str:
    """Return a fingerprint of the weights."""
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
