from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from captum.attr import FeatureAblation, LLMAttribution, LLMGradientAttribution

from hf_serve.handlers.compat.captum import (
    CharacterTokenizer,
    EncoderGradientXActivation,
    EncoderIntegratedGradients,
    TokenizedPrompt,
)

IDS, SPECIAL, BASELINE, TARGET = [1, 5, 6, 2], [1, 0, 0, 1], 0, [3, 4]


class Names:
    def convert_ids_to_tokens(self, ids: list[int]) -> list[str]:
        return [f"t{each}" for each in ids]


class Model(torch.nn.Module):
    """Its logits are the sums of the vectors of the tokens so far, or of the first ones alone."""

    device = torch.device("cpu")

    def __init__(self, reads: int | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.vectors, self.reads = torch.nn.Embedding(8, 8), reads

    def forward(self, input_ids: torch.Tensor, **_: Any) -> SimpleNamespace:
        if self.reads is None:
            return SimpleNamespace(logits=self.vectors(input_ids).cumsum(1))
        states = self.vectors(input_ids[:, : self.reads]).sum(1, keepdim=True)
        return SimpleNamespace(logits=states.expand(-1, input_ids.shape[1], -1))


def prompt(*segments: list[int]) -> TokenizedPrompt:
    return TokenizedPrompt(IDS, SPECIAL, Names(), BASELINE, segments or ([1], [2]))


def score(ids: list[int]) -> torch.Tensor:
    """Return the log-probability of the first token of the text after a prompt."""
    with torch.no_grad():
        return Model()(torch.tensor([ids])).logits[0, -1].log_softmax(-1)[TARGET[0]]


def test_tokens_that_are_not_special_are_attributed() -> None:
    attribution = LLMAttribution(FeatureAblation(Model()), CharacterTokenizer())
    with torch.no_grad():
        result = attribution.attribute(prompt(), torch.tensor(TARGET), forward_in_tokens=False)
    assert result.token_attr.shape == (len(TARGET), 2)
    assert result.input_tokens == ["t5", "t6"]
    # An ablation replaces a token by the baseline.
    less = score(IDS) - score([1, BASELINE, 6, 2])
    assert torch.isclose(result.token_attr[0, 0], less, atol=1e-5)


def test_tokens_of_a_segment_are_replaced_together() -> None:
    attribution = LLMAttribution(FeatureAblation(Model()), CharacterTokenizer())
    with torch.no_grad():
        result = attribution.attribute(
            prompt([1, 2]), torch.tensor(TARGET), forward_in_tokens=False
        )
    less = score(IDS) - score([1, BASELINE, BASELINE, 2])
    assert torch.allclose(result.token_attr[0], torch.stack([less, torch.tensor(0.0)]), atol=1e-5)


@pytest.mark.parametrize("kind", [EncoderIntegratedGradients, EncoderGradientXActivation])
def test_tokens_that_an_encoder_reads_are_attributed_for_each_token_of_the_text(kind: Any) -> None:
    model = Model(reads=len(IDS))
    attribution = LLMGradientAttribution(kind(model, model.vectors), CharacterTokenizer())
    result = attribution.attribute(prompt(), torch.tensor(TARGET))
    assert result.token_attr.shape == (len(TARGET), 2)
    assert result.token_attr.abs().sum(1).min() > 0
