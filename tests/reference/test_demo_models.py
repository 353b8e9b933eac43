from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hf_serve.demo_models import ensure
from hf_serve.scripts.paths import MODELS
from tests.reference.test_pipelines import parts
from tests.serving import Served, differences
from tests.tiny import digest

DEMO = Path(__file__).with_name("demo.jsonl")
SURE, TOLERANCE = 0.9, 0.05

pytestmark = pytest.mark.skipif(not DEMO.is_file(), reason="make_reference.py has not made it yet")


def items(answer: Any) -> Iterator[tuple[str, float]]:
    """Yield each label, entity or answer as JSON without its score, and the score."""
    for item in answer if isinstance(answer, list) else [answer]:
        facts = {key: value for key, value in item.items() if key != "score"}
        yield json.dumps(facts, sort_keys=True), item["score"]


def differing(found: Any, expected: Any) -> list[str]:
    """Return the items with a high score in the reference that the answer does not have."""
    scores = dict(items(found))
    sure = {facts: score for facts, score in items(expected) if score >= SURE}
    return [facts for facts, score in sure.items() if abs(scores.get(facts, 0) - score) > TOLERANCE]


@pytest.mark.parametrize(
    "part", parts(DEMO) if DEMO.is_file() else [], ids=lambda part: str(part["mode"])
)
def test_demo_models_answer_what_the_pipelines_answered(part: dict[str, Any]) -> None:
    """Compare everything on equal weights, else the items with a high score.

    Training is seeded, but another processor gives slightly different weights.
    """
    ensure([part["mode"]])
    model = Served(MODELS / part["mode"], part["mode"])
    same = digest(MODELS / part["mode"]) == part["digest"]
    for row in part["rows"]:
        found, expected = model.ask(row["inputs"], **row["parameters"]), row["answer"]
        wrong = differences(found, expected, 1e-4) if same else differing(found, expected)
        assert not wrong, (row["inputs"], row["parameters"])


@pytest.mark.parametrize(
    "part", parts(DEMO) if DEMO.is_file() else [], ids=lambda part: str(part["mode"])
)
def test_the_reference_has_high_scores(part: dict[str, Any]) -> None:
    scores = [score for row in part["rows"] for _, score in items(row["answer"])]
    assert sum(score >= SURE for score in scores) >= 3
