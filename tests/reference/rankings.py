"""Checkpoints of cross-encoders, and what sentence-transformers is asked with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from tests import tiny
from tests.reference.rows import COMBINED, DULL, FINE, LONG, LONG_QUESTION, ODD, PEOPLE, WHO

MODE = "sentence_ranking"
IDENTITY = "torch.nn.modules.linear.Identity"
THREE = {0: "contradiction", 1: "entailment", 2: "neutral"}
KINDS: dict[str, dict[str, Any]] = {
    "bert": {},
    "roberta": {"family": "Roberta", "seed": 1},
    "identity": {"seed": 2, "sentence_transformers": {"activation_fn": IDENTITY}},
    "old": {"seed": 3, "sbert_ce_default_activation_function": IDENTITY},
    "labels": {"seed": 4, "id2label": THREE},
}
TEXTS = [FINE, DULL, PEOPLE, ODD, COMBINED, LONG, "zzz", "🎉", "[CLS] Ada [SEP] Tom <s> </s>"]


class Ranking(NamedTuple):
    """A query with texts; `max_length` cuts the texts of a long pair."""

    query: str
    texts: list[str]
    top_n: int | None = None
    max_length: int | None = None


RANKINGS = [
    Ranking(WHO, TEXTS),
    Ranking(ODD, TEXTS, top_n=3),
    Ranking(LONG_QUESTION, [LONG, PEOPLE, FINE]),
    Ranking(WHO, [LONG, f"{PEOPLE} {LONG}", FINE], max_length=48),
    Ranking("🎉", [DULL]),
]


def write(folder: Path, kind: str) -> Path:
    """Write the checkpoint of a kind: the same weights on every machine."""
    return tiny.write(folder, MODE, **KINDS[kind])
