"""Attribution of generated tokens to prompt tokens with Captum's LLM attribution.

It processes one prompt at a time: `LLMAttribution` wraps the perturbation methods and
`LLMGradientAttribution` the gradient methods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
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
)
from transformers import PreTrainedTokenizerBase

from handlers.batching.tokenization import Window
from handlers.compat.captum import (
    CharacterTokenizer,
    EncoderGradientXActivation,
    EncoderIntegratedGradients,
    TokenizedPrompt,
)
from handlers.explainers._tokens import ExplainedTextModel
from handlers.explainers._vectors import TokenVectors
from handlers.process.ranks import seeded
from handlers.types.parameters import ExplanationParameters

Values = npt.NDArray[np.float64]


class LanguageModel(torch.nn.Module):
    """Adapts a model to the interface that Captum expects: token ids to logits.

    Args:
        model: the model.
        vectors: what looks up the vectors of the prompt's tokens, whose output Captum explains;
            None where it explains token ids.
    """

    device = torch.device("cpu")

    def __init__(self, model: ExplainedTextModel, vectors: TokenVectors | None = None) -> None:
        super().__init__()
        self._model, self._vectors = model, vectors

    def forward(self, input_ids: torch.Tensor, **_: Any) -> SimpleNamespace:
        """Return an object with `logits` of shape (rows, tokens, vocabulary)."""
        return SimpleNamespace(logits=self.run({"input_ids": input_ids}))

    def run(self, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Return the logits of rows without padding. Shape: (rows, tokens, vocabulary)."""
        self._model.deadline.check_together()
        ids = inputs["input_ids"]
        batch = {**inputs, "attention_mask": torch.ones_like(ids)}
        with self._vectors.replaced(ids, self._vectors(ids)) if self._vectors else nullcontext():
            return self._model.forward(batch)["logits"].float().cpu()


class EncoderDecoderModel(LanguageModel):
    """Shows an encoder-decoder as a decoder that continues what the encoder reads.

    Args:
        model: the model.
        length: the number of tokens that the encoder reads; those after them are the text's.
        start: the tokens that the decoder reads before those of the text.
        vectors: see :class:`LanguageModel`.
    """

    def __init__(
        self,
        model: ExplainedTextModel,
        length: int,
        start: Sequence[int],
        vectors: TokenVectors | None = None,
    ) -> None:
        super().__init__(model, vectors)
        self._length, self._start = length, torch.tensor([start])

    def forward(self, input_ids: torch.Tensor, **_: Any) -> SimpleNamespace:
        read, text = input_ids[:, : self._length], input_ids[:, self._length :]
        decoded = torch.cat([self._start.expand(len(text), -1), text], dim=1)
        logits = self.run({"input_ids": read, "decoder_input_ids": decoded})
        # The last start token has the logits of the text's first token, as a prompt's last one.
        logits = logits[:, self._start.shape[1] - 1 :]
        before = logits.new_zeros(len(logits), self._length - 1, logits.shape[2])
        return SimpleNamespace(logits=torch.cat([before, logits], dim=1))


@dataclass(frozen=True)
class GenerationAttribution:
    """The attribution of a target text to its prompt.

    Attributes:
        model: the model.
        tokenizer: the tokenizer of the model.
        row: the prompt.
        target: the token ids that follow the prompt.
        settings: the explanation parameters.
        decoder_start: the tokens that the decoder of an encoder-decoder reads before the target;
            none for a decoder that continues the prompt.
    """

    model: ExplainedTextModel
    tokenizer: PreTrainedTokenizerBase
    row: Window
    target: list[int]
    settings: ExplanationParameters
    decoder_start: Sequence[int] = ()

    def language_model(self, vectors: TokenVectors | None = None) -> LanguageModel:
        """Return the model as Captum expects it, to explain token ids or their vectors."""
        if not self.decoder_start:
            return LanguageModel(self.model, vectors)
        return EncoderDecoderModel(self.model, len(self.row), self.decoder_start, vectors)

    @property
    def vectors(self) -> TokenVectors:
        """The vectors of the prompt's tokens."""
        if self.model.vectors is None:
            raise NotImplementedError
        return self.model.vectors

    def attribute(self, method: str) -> Values:
        """Attribute the log-probability of each target token to the prompt tokens.

        Returns:
            The contributions, 0 for special tokens. Shape: (target tokens, prompt tokens), or
            (1, prompt tokens) for methods that attribute the whole target only.
        """
        prompt = TokenizedPrompt(
            self.row.features["input_ids"],
            self.row.encoding.special_tokens_mask,
            self.tokenizer,
            self.model.baseline_token_id,
        )
        with seeded(0):
            attributions = METHODS[method](self, prompt)
        values = np.zeros((len(attributions), len(self.row)))
        values[:, prompt.itp_mask[0].numpy()] = attributions.detach().double().cpu().numpy()
        return values

    @torch.no_grad()
    def log_probabilities(self) -> tuple[Values, Values]:
        """Return the log-probabilities of the target after the prompt and after the baseline."""
        ids = torch.tensor(self.row.features["input_ids"])
        special = torch.tensor(self.row.encoding.special_tokens_mask) == 1
        baseline = torch.where(special, ids, self.model.baseline_token_id)
        target = torch.tensor(self.target)
        return self._log_probabilities(ids, target), self._log_probabilities(baseline, target)

    def _log_probabilities(self, prompt: torch.Tensor, target: torch.Tensor) -> Values:
        row = torch.cat([prompt, target])[None]
        logits = self.language_model()(row).logits[0, len(prompt) - 1 : -1]
        selected = logits.log_softmax(-1)[torch.arange(len(target)), target]
        return np.asarray(selected.double().numpy())


def _perturbation(
    captum_class: Callable[[Any], Any], default_samples: int | None = None
) -> Callable[[GenerationAttribution, TokenizedPrompt], torch.Tensor]:
    def attribute(attribution: GenerationAttribution, prompt: TokenizedPrompt) -> torch.Tensor:
        model = attribution.language_model()
        samples = attribution.settings.n_samples or default_samples
        options = {"n_samples": samples} if default_samples else {}
        with torch.no_grad():
            result = LLMAttribution(captum_class(model), CharacterTokenizer()).attribute(
                prompt, torch.tensor(attribution.target), forward_in_tokens=False, **options
            )
        return result.seq_attr[None] if result.token_attr is None else result.token_attr

    return attribute


def _integrated_gradients(
    attribution: GenerationAttribution, prompt: TokenizedPrompt
) -> torch.Tensor:
    kind = EncoderIntegratedGradients if attribution.decoder_start else LayerIntegratedGradients
    captum = kind(attribution.language_model(attribution.vectors), attribution.vectors)
    steps = attribution.settings.n_steps or 24
    rows = max(1, attribution.model.budget // (len(attribution.row) + len(attribution.target)))
    return _attribute_gradients(
        captum, attribution, prompt, n_steps=steps, internal_batch_size=rows
    )


def _input_x_gradient(attribution: GenerationAttribution, prompt: TokenizedPrompt) -> torch.Tensor:
    kind = EncoderGradientXActivation if attribution.decoder_start else LayerGradientXActivation
    captum = kind(attribution.language_model(attribution.vectors), attribution.vectors)
    return _attribute_gradients(captum, attribution, prompt)


def _attribute_gradients(
    captum: Any, attribution: GenerationAttribution, prompt: TokenizedPrompt, **options: Any
) -> torch.Tensor:
    wrapped = LLMGradientAttribution(captum, CharacterTokenizer())
    return wrapped.attribute(prompt, torch.tensor(attribution.target), **options).token_attr


METHODS: dict[str, Callable[[GenerationAttribution, TokenizedPrompt], torch.Tensor]] = {
    "layer_integrated_gradients": _integrated_gradients,
    "input_x_gradient": _input_x_gradient,
    "feature_ablation": _perturbation(FeatureAblation),
    "shapley_value_sampling": _perturbation(ShapleyValueSampling, 10),
    "kernel_shap": _perturbation(KernelShap, 100),
}
