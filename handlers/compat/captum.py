"""What is undocumented in Captum's attribution of generated text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from captum.attr import LayerGradientXActivation, LayerIntegratedGradients, TextTokenInput


class TokenizedPrompt(TextTokenInput):
    """A prompt of token ids, whose special tokens are not attributed or replaced.

    Captum's own class takes a text, and replaces one token at a time.

    Breaks when `LLMAttribution` reads another attribute of a `TextTokenInput` than these, or does
    not format its attributions with it.

    Args:
        special: 1 for each special token, 0 for others.
        baseline_token_id: the token that stands for one that is left out.
        segments: the positions of tokens that are replaced together; all that are not special.
    """

    def __init__(
        self,
        ids: Sequence[int],
        special: Sequence[int],
        tokenizer: Any,
        baseline_token_id: int,
        segments: Sequence[Sequence[int]],
    ) -> None:
        self.inp_tensor = torch.tensor([ids])
        self.itp_mask = torch.tensor([special]) == 0
        self.itp_tensor = self.inp_tensor[self.itp_mask].unsqueeze(0)
        self.n_itp_features = len(segments)
        self.values = tokenizer.convert_ids_to_tokens(self.itp_tensor[0].tolist())
        self.tokenizer, self.baselines, self.skip_tokens = tokenizer, baseline_token_id, None
        segment_of, is_first = torch.zeros(len(ids), dtype=torch.long), self.itp_mask[0].clone()
        for number, positions in enumerate(segments):
            segment_of[list(positions)] = number
            is_first[list(positions[1:])] = False
        self._segment_of = segment_of[self.itp_mask[0]]
        self._is_first = is_first[self.itp_mask[0]]

    def to_tensor(self) -> torch.Tensor:
        """Return 1 for each segment: none is replaced."""
        return torch.ones(1, self.n_itp_features, dtype=torch.long)

    def to_model_input(self, perturbed_tensor: torch.Tensor | None = None) -> torch.Tensor:
        """Return token ids, without the segments that are not 1 in a tensor of `to_tensor`."""
        if perturbed_tensor is not None:
            perturbed_tensor = perturbed_tensor[:, self._segment_of]
        return super().to_model_input(perturbed_tensor)

    def format_attr(self, itp_attr: torch.Tensor) -> torch.Tensor:
        """Return the attribution of a segment at its first token, and 0 at its others."""
        return itp_attr[:, self._segment_of] * self._is_first


class CharacterTokenizer:
    """A tokenizer that represents each token id as one character.

    Captum decodes and re-encodes tokens to name them. Byte-level tokenizers do not support that
    for a token that is part of a character.

    Breaks when `LLMAttribution` calls another method of its tokenizer.
    """

    offset = 0x10000

    def decode(self, ids: torch.Tensor) -> str:
        """Return one character for each id."""
        return "".join(chr(self.offset + token) for token in ids.flatten().tolist())

    def __call__(self, text: str, **_: Any) -> dict[str, Any]:
        """Return the id and the offsets of each character."""
        return {
            "input_ids": [ord(character) - self.offset for character in text],
            "offset_mapping": [(start, start + 1) for start in range(len(text))],
        }


class _ReadTokens:
    """Gives attributions of an encoder's tokens the columns that Captum removes.

    It expects those of the target's tokens before the current one after those of the prompt.
    """

    def attribute(self, inputs: Any, additional_forward_args: Any = None, **options: Any) -> Any:
        super_class: Any = super()
        values = super_class.attribute(
            inputs, additional_forward_args=additional_forward_args, **options
        )
        *_, current = additional_forward_args
        return torch.nn.functional.pad(values, (0, 0, 0, current))


class EncoderIntegratedGradients(_ReadTokens, LayerIntegratedGradients):
    """Integrated gradients of an encoder's embeddings.

    Breaks when `LLMGradientAttribution` does not pass the number of the current token as the last
    of `additional_forward_args`, or removes no columns.
    """


class EncoderGradientXActivation(_ReadTokens, LayerGradientXActivation):
    """Gradient times activation of an encoder's embeddings.

    Breaks when :class:`EncoderIntegratedGradients` does.
    """
