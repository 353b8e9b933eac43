"""Prompts with sampling of their own share a batch, and each has the text of `generate`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GenerationConfig

from hf_serve.handlers.errors import NotFinite
from hf_serve.handlers.generation.logits_processors import BatchRows, PerPromptSampler, Sampling
from hf_serve.handlers.types.request import Request
from tests import tiny
from tests.serving import Served, stream_into

MODE = "text_generation"
ONLY_THE_BEST = Sampling((("top_k", 1),), seed=1)
EVERY_FILTER: dict[str, Any] = {
    "temperature": 0.7,
    "top_h": 0.9,
    "top_k": 30,
    "top_p": 0.95,
    "min_p": 0.01,
    "typical_p": 0.9,
    "epsilon_cutoff": 1e-4,
    "eta_cutoff": 1e-4,
}


@pytest.fixture
def model(served: Callable[..., Served]) -> Served:
    return served(MODE)


@pytest.fixture
def batches(model: Served, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of rows of each batch that `generate` gets."""
    rows: list[int] = []
    generate = model.engine.model.generate

    def counted(batch: Any, *arguments: Any, **options: Any) -> torch.Tensor:
        rows.append(len(batch["input_ids"]))
        return generate(batch, *arguments, **options)

    monkeypatch.setattr(model.engine.model, "generate", counted)
    return rows


def body(text: str, **parameters: Any) -> dict[str, Any]:
    return {"inputs": text, "parameters": {"max_new_tokens": 12, **parameters}}


def test_texts_with_their_own_settings_share_a_batch_with_greedy_ones(
    model: Served, batches: list[int]
) -> None:
    sampled = [
        body(f"Ada {seed}", do_sample=True, seed=seed, temperature=0.5 + seed / 4, top_k=seed)
        for seed in range(6)
    ]
    bodies = [*sampled, body("Tom"), body("A fox", do_sample=True, seed=2, top_p=0.8)]
    alone = [model.post(each)[0] for each in bodies]
    batches.clear()
    assert model.post(*bodies) == alone
    assert batches == [len(bodies)]


def test_several_texts_of_each_prompt_share_a_batch(model: Served, batches: list[int]) -> None:
    bodies = [
        body("Ada", do_sample=True, seed=seed, temperature=2.0 + seed, num_return_sequences=3)
        for seed in range(3)
    ]
    alone = [model.post(each)[0] for each in bodies]
    batches.clear()
    assert model.post(*bodies) == alone
    assert batches == [3]
    assert len({text["generated_text"] for _, texts in alone for text in texts}) > 3


def test_texts_without_a_seed_differ(model: Served, batches: list[int]) -> None:
    bodies = [body("Ada", do_sample=True, temperature=3.0) for _ in range(8)]
    assert len({str(answer) for _, answer in model.post(*bodies)}) > 1
    assert batches == [8]


def test_the_filters_are_those_of_generate_in_its_order(model: Served) -> None:
    module: Any = model.engine.model.module  # type: ignore[attr-defined]
    config = GenerationConfig(**EVERY_FILTER, do_sample=True, pad_token_id=0, eos_token_id=None)
    module._prepare_special_tokens(config, device="cpu")
    expected = module._get_logits_processor(config, device="cpu")
    found = Sampling.of(config, {}, None).filters(torch.device("cpu"))
    assert [type(each) for each in found] == [type(each) for each in expected]
    ids, scores = torch.tensor([[1, 2]]), torch.randn(1, 500)
    assert torch.equal(found(ids, scores.clone()), expected(ids, scores.clone()))


@pytest.mark.parametrize(
    ("base", "given", "expected"),
    [
        ({}, {}, {"top_k": 50}),
        ({}, {"top_k": 0}, {}),
        ({"temperature": 0.6, "top_p": 0.9}, {"top_p": 1.0}, {"temperature": 0.6, "top_k": 50}),
        ({"min_p": 0.1, "top_k": 3}, {"top_k": 4}, {"top_k": 4, "min_p": 0.1}),
    ],
)
def test_a_request_precedes_the_checkpoint_and_that_the_defaults(
    base: dict[str, Any], given: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert dict(Sampling.of(GenerationConfig(**base), given, None).settings) == expected


def test_prompts_that_are_not_sampled_keep_their_scores() -> None:
    sampler = PerPromptSampler([None, ONLY_THE_BEST], BatchRows())
    scores = torch.tensor([[0.1, 0.2, 0.3], [0.1, 0.9, 0.3]])
    found = sampler(torch.zeros(2, 1, dtype=torch.int64), scores)
    assert torch.equal(found[0], scores[0])
    assert found[1].tolist() == [-torch.inf, 0.0, -torch.inf]


def test_nothing_is_drawn_for_prompts_that_have_ended() -> None:
    sampler = PerPromptSampler([ONLY_THE_BEST, ONLY_THE_BEST], BatchRows(ended={0, 1}))
    scores = torch.rand(4, 3)
    scores[0] = torch.nan
    found = sampler(torch.zeros(4, 1, dtype=torch.int64), scores)
    assert not found[:2].any()
    assert found[2:].isneginf().sum() == 4


@pytest.mark.parametrize("sequences", [1, 2])
def test_a_prompt_without_finite_logits_fails_alone(
    model: Served, monkeypatch: pytest.MonkeyPatch, batches: list[int], sequences: int
) -> None:
    """Also where others of its batch are streamed, which cannot be repeated."""
    sampled = {"do_sample": True, "num_return_sequences": sequences, "max_new_tokens": 9}
    prompts = [Request(text, {**sampled, "seed": 3}) for text in ("Ada", "Tom", "a fox")]
    parts: list[str] = []
    streamed = Request("b", {**sampled, "seed": 4}, stream=stream_into(parts))
    expected = model.engine.predict([*prompts, streamed])
    draw = PerPromptSampler.__call__
    batches.clear()

    def broken(
        sampler: PerPromptSampler, input_ids: torch.Tensor, scores: torch.Tensor
    ) -> torch.Tensor:
        scores = scores.clone()
        scores[1] = torch.nan
        return draw(sampler, input_ids, scores)

    monkeypatch.setattr(PerPromptSampler, "__call__", broken)
    outcomes = model.engine.predict([*prompts, streamed])
    failed = [isinstance(outcome, NotFinite) for outcome in outcomes]
    assert sum(failed) == 1
    pairs = zip(outcomes, expected, failed, strict=True)
    assert all(outcome == text for outcome, text, has_failed in pairs if not has_failed)
    assert batches == [4]


def test_nothing_is_sent_of_a_token_without_finite_logits(
    model: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts: list[str] = []
    request = Request("Ada", {"do_sample": True, "seed": 3}, stream=stream_into(parts))
    draw = PerPromptSampler.__call__

    def broken(sampler: PerPromptSampler, ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return draw(sampler, ids, torch.full_like(scores, torch.nan))

    monkeypatch.setattr(PerPromptSampler, "__call__", broken)
    [outcome] = model.engine.predict([request])
    assert isinstance(outcome, NotFinite)
    assert "".join(parts) == ""


@pytest.mark.parametrize(
    "base",
    [
        {"top_p": 1.5, "typical_p": 2.0, "epsilon_cutoff": 1.0, "eta_cutoff": 1.0},
        {"watermarking_config": {"greenlist_ratio": 0.25, "bias": 8.0}},
        {"do_sample": True, "temperature": 0.3, "min_p": 0.2, "renormalize_logits": True},
    ],
)
@pytest.mark.parametrize("sequences", [1, 2])
def test_a_checkpoint_with_other_settings_has_the_texts_of_generate(
    base: dict[str, Any], sequences: int, tmp_path: Path
) -> None:
    tiny.write(tmp_path, MODE)
    (tmp_path / "generation_config.json").write_text(json.dumps(base), encoding="utf-8")
    model = Served(tmp_path, MODE)
    given = {"do_sample": True, "seed": 3, "num_return_sequences": sequences}
    ids = model.engine.task.checkpoint.tokenizer("Ada", return_tensors="pt")
    module: Any = model.engine.model.module  # type: ignore[attr-defined]
    torch.manual_seed(3)
    rows = module.generate(
        **ids,
        max_new_tokens=12,
        do_sample=True,
        num_return_sequences=sequences,
        pad_token_id=0,
    )
    texts = [
        model.engine.task.checkpoint.tokenizer.decode(row, skip_special_tokens=True)
        for row in rows.tolist()
    ]
    answers = model.post(body("Ada", **given), body("Tom", **given), body("Tom"))
    assert [status for status, _ in answers] == [200, 200, 200]
    assert [each["generated_text"] for each in answers[0][1]] == texts
