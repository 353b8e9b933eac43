"""What is undocumented in Captum's attribution of generated text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from captum.attr import LayerGradientXActivation, LayerIntegratedGradients, TextTokenInput


class TokenizedPrompt(TextTokenInput):
    """A prompt of token ids, whose special tokens are not attributed or replaced.

    Captum's own class takes a text.

    Breaks when `LLMAttribution` reads another attribute of a `TextTokenInput` than these.

    Args:
        special: 1 for each special token, 0 for others.
        baseline_token_id: the token that stands for one that is left out.
    """

    def __init__(
        self,
        ids: Sequence[int],
        special: Sequence[int],
        tokenizer: Any,
        baseline_token_id: int,
    ) -> None:
        self.inp_tensor = torch.tensor([ids])
        self.itp_mask = torch.tensor([special]) == 0
        self.itp_tensor = self.inp_tensor[self.itp_mask].unsqueeze(0)
        self.values = tokenizer.convert_ids_to_tokens(self.itp_tensor[0].tolist())
        self.n_itp_features = len(self.values)
        self.tokenizer, self.baselines, self.skip_tokens = tokenizer, baseline_token_id, None


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
