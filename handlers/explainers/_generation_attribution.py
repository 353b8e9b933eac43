"""Captum's LLM attribution: which prompt tokens led to which produced tokens.

Works on one prompt at a time: `LLMAttribution` around the perturbation methods and
`LLMGradientAttribution` around those that take gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from captum.attr import (
    FeatureAblation,
    KernelShap,
    LayerGradientXActivation,
    LayerIntegratedGradients,
    LLMAttribution,
    LLMGradientAttribution,
    ShapleyValueSampling,
    TextTokenInput,
)
from transformers import PreTrainedTokenizerBase

from handlers.batching.tokenization import Window
from handlers.explainers.base import ExplainedModel, differentiable
from handlers.generation.randomness import seeded
from handlers.schemas.explanation_parameters import ExplanationParameters

Values = npt.NDArray[np.float64]


class LanguageModel(torch.nn.Module):
    """The subject as Captum wants a language model: called with ids, answering with logits."""

    device = torch.device("cpu")

    def __init__(self, model: ExplainedModel) -> None:
        super().__init__()
        self._model = model

    def forward(self, input_ids: torch.Tensor, **_: Any) -> SimpleNamespace:
        """Return an object with `logits` of shape (rows, tokens, vocabulary)."""
        self._model.deadline.check()
        batch = {"input_ids": input_ids, "attention_mask": torch.ones_like(input_ids)}
        return SimpleNamespace(logits=self._model.forward(batch)["logits"].float().cpu())


class Characters:
    """A tokenizer for Captum, which names tokens by decoding and encoding again: one for each id.

    The real one cannot always do that: half of a character's bytes have no text of their own.
    """

    first = 0x10000

    def decode(self, ids: torch.Tensor) -> str:
        """Return a character for each id."""
        return "".join(chr(self.first + number) for number in ids.flatten().tolist())

    def __call__(self, text: str, **_: Any) -> dict[str, Any]:
        """Return the id and the place of each character."""
        places = range(len(text))
        return {
            "input_ids": [ord(letter) - self.first for letter in text],
            "offset_mapping": [(place, place + 1) for place in places],
        }


class Prompt(TextTokenInput):
    """A prompt that is tokenized already; special tokens stay what they are."""

    def __init__(
        self, row: Window, tokenizer: PreTrainedTokenizerBase, baseline_token_id: int
    ) -> None:
        self.inp_tensor = torch.tensor([row.features["input_ids"]])
        self.itp_mask = torch.tensor([row.encoding.special_tokens_mask]) == 0
        self.itp_tensor = self.inp_tensor[self.itp_mask].unsqueeze(0)
        self.values = tokenizer.convert_ids_to_tokens(self.itp_tensor[0].tolist())
        self.n_itp_features = len(self.values)
        self.tokenizer, self.baselines, self.skip_tokens = tokenizer, baseline_token_id, None


@dataclass(frozen=True)
class GenerationAttribution:
    """A prompt, what followed it, and the model: all that an attribution needs."""

    model: ExplainedModel
    tokenizer: PreTrainedTokenizerBase
    row: Window
    target: list[int]
    settings: ExplanationParameters

    @property
    def embeddings(self) -> torch.nn.Module:
        """The module that turns ids into vectors, where the format has one."""
        if self.model.embeddings is None:
            raise NotImplementedError
        return self.model.embeddings

    def attribute(self, method: str) -> Values:
        """Return the part of each prompt token in each produced token's log-probability.

        Shape: (produced tokens, prompt tokens); special tokens have none. A method that knows
        whole answers only gives one row.
        """
        prompt = Prompt(self.row, self.tokenizer, self.model.baseline_token_id)
        with seeded(0):
            found = METHODS[method](self, LanguageModel(self.model), prompt)
        values = np.zeros((len(found), len(self.row)))
        values[:, prompt.itp_mask[0].numpy()] = found.detach().double().cpu().numpy()
        return values

    @torch.no_grad()
    def log_probabilities(self) -> tuple[Values, Values]:
        """Return each produced token's log-probability behind the prompt and behind padding."""
        ids = torch.tensor(self.row.features["input_ids"])
        special = torch.tensor(self.row.encoding.special_tokens_mask) == 1
        blank = torch.where(special, ids, self.model.baseline_token_id)
        target = torch.tensor(self.target)
        rows = torch.stack([torch.cat([ids, target]), torch.cat([blank, target])])
        logits = LanguageModel(self.model)(rows).logits[:, len(ids) - 1 : -1]
        chosen = logits.log_softmax(-1)[:, torch.arange(len(target)), target].double().numpy()
        return chosen[0], chosen[1]


def _perturbed(
    make: Callable[[Any], Any], usual_samples: int | None = None
) -> Callable[[GenerationAttribution, LanguageModel, Prompt], torch.Tensor]:
    def attribute(
        attribution: GenerationAttribution, model: LanguageModel, prompt: Prompt
    ) -> torch.Tensor:
        samples = attribution.settings.n_samples or usual_samples
        options = {"n_samples": samples} if usual_samples else {}
        with torch.no_grad():
            found = LLMAttribution(make(model), Characters()).attribute(
                prompt, torch.tensor(attribution.target), forward_in_tokens=False, **options
            )
        return found.seq_attr[None] if found.token_attr is None else found.token_attr

    return attribute


def _integrated(
    attribution: GenerationAttribution, model: LanguageModel, prompt: Prompt
) -> torch.Tensor:
    captum = LayerIntegratedGradients(model, attribution.embeddings)
    steps = attribution.settings.n_steps or 24
    rows = max(1, attribution.model.budget // (len(attribution.row) + len(attribution.target)))
    return _by_gradient(captum, attribution, prompt, n_steps=steps, internal_batch_size=rows)


def _times_gradient(
    attribution: GenerationAttribution, model: LanguageModel, prompt: Prompt
) -> torch.Tensor:
    with differentiable(attribution.embeddings):
        captum = LayerGradientXActivation(model, attribution.embeddings)
        return _by_gradient(captum, attribution, prompt)


def _by_gradient(
    captum: Any, attribution: GenerationAttribution, prompt: Prompt, **options: Any
) -> torch.Tensor:
    wrapped = LLMGradientAttribution(captum, Characters())
    return wrapped.attribute(prompt, torch.tensor(attribution.target), **options).token_attr


METHODS: dict[str, Callable[[GenerationAttribution, LanguageModel, Prompt], torch.Tensor]] = {
    "layer_integrated_gradients": _integrated,
    "input_x_gradient": _times_gradient,
    "feature_ablation": _perturbed(FeatureAblation),
    "shapley_value_sampling": _perturbed(ShapleyValueSampling, 10),
    "kernel_shap": _perturbed(KernelShap, 100),
}
