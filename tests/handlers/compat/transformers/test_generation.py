from __future__ import annotations

import torch
from transformers import (
    GenerationConfig,
    GPT2Config,
    GPT2LMHeadModel,
    LogitsProcessor,
    LogitsProcessorList,
)

from handlers.compat.transformers.generation import default_settings, run_before_other_processors


class Recorder(LogitsProcessor):
    def __init__(self) -> None:
        self.seen: list[torch.Tensor] = []

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self.seen.append(scores.clone())
        return scores


def small_model() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=32, n_positions=32, n_embd=8, n_layer=1, n_head=2))


def test_generate_has_these_settings_where_none_are_given() -> None:
    defaults = default_settings(GenerationConfig())
    assert (defaults["temperature"], defaults["top_k"], defaults["top_p"]) == (1.0, 50, 1.0)


def test_the_processor_sees_the_logits_of_the_model() -> None:
    """A processor that `generate` takes as an argument sees what its own processors leave."""
    model, ids = small_model().eval(), torch.tensor([[1, 2, 3]])
    first, last = Recorder(), Recorder()
    config = GenerationConfig(
        max_new_tokens=1, do_sample=False, bad_words_ids=[[5]], pad_token_id=0
    )
    text = model.generate(
        ids,
        generation_config=config,
        logits_processor=LogitsProcessorList([last]),
        **run_before_other_processors(first),
    )
    with torch.inference_mode():
        expected = model(ids).logits[:, -1].float()
    assert torch.allclose(first.seen[0], expected, atol=1e-5)
    assert torch.isinf(last.seen[0][0, 5])
    assert text.tolist() == model.generate(ids, generation_config=config).tolist()
