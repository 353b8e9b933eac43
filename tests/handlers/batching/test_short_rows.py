"""Texts of one, two and three tokens: each family answers and explains them, alone and in company.

Families that shorten their rows (CANINE, Funnel) fail at such rows in transformers, which is where
the kit pads them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tokenizers import processors

from hf_serve.handlers.batching.padding import pad
from hf_serve.handlers.batching.rows import Row
from hf_serve.handlers.compat.transformers import shortest_row
from hf_serve.handlers.errors import NotFinite
from hf_serve.handlers.types.request import Request
from tests import families

SHORTENING = ("canine", "funnel")
# Their heads read the end token of a text, which the tokenizer of these tests does not add.
READ_THE_END = ("bart", "bigbird_pegasus", "led", "mbart", "mt5", "mvp", "plbart", "t5", "umt5")
WORDS = [f"w{number}" for number in range(20, 60)]
TEXTS = [" ".join(WORDS[:count]) for count in (1, 2, 3, 4, 40)]
CASES = [
    pytest.param(family, mode, marks=() if family in SHORTENING else pytest.mark.nightly)
    for family in families.CLASSIFIERS
    for mode in families.modes(family)
    if family not in READ_THE_END
]


@pytest.fixture
def without_special_tokens(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    made = families.tokenizer.__wrapped__()
    made.backend_tokenizer.post_processor = processors.TemplateProcessing("$A", None, [])
    monkeypatch.setattr(families, "tokenizer", lambda: made)
    yield


@pytest.mark.usefixtures("without_special_tokens")
@pytest.mark.parametrize(("family", "mode"), CASES)
def test_short_texts_are_answered_and_explained(family: str, mode: str) -> None:
    engine = families.engine(families.module(family, mode), mode)
    alone: list[Any] = [engine.predict([Request(text)])[0] for text in TEXTS]
    assert all(isinstance(found, list) for found in alone), alone
    together: list[Any] = engine.predict(list(map(Request, TEXTS)))
    for found, expected in zip(together, alone, strict=True):
        assert [each["label" if "label" in each else "entity"] for each in found] == [
            each["label" if "label" in each else "entity"] for each in expected
        ]
        scores = [each["score"] for each in expected]
        assert [each["score"] for each in found] == pytest.approx(scores, abs=2e-5)
    for explanation in engine.explain([Request(text, {"n_steps": 4}) for text in TEXTS[:4]]):
        # Single tokens have gradients of zero in some families.
        assert isinstance(explanation, (dict, NotFinite)), explanation


@pytest.mark.parametrize("family", SHORTENING)
@pytest.mark.parametrize("count", [1, 2, 3, 6])
def test_a_short_row_is_what_transformers_computes_of_a_padded_one(family: str, count: int) -> None:
    module = families.module(family, "token_classification")
    engine = families.engine(module, "token_classification")
    ids = list(range(10, 10 + count))
    width = max(count, shortest_row(module.config))
    with torch.inference_mode():
        expected = module(
            input_ids=torch.tensor([[*ids, *[1] * (width - count)]]),
            attention_mask=torch.tensor([[1] * count + [0] * (width - count)]),
        ).logits[0, :count]
        padding = engine.task.padding
        assert padding is not None
        batch = pad([Row({"input_ids": ids})], padding)
        found = engine.model.forward(batch)["logits"][0, :count]
    assert batch["input_ids"].shape == (1, width)
    assert torch.allclose(found, expected, atol=1e-6)
