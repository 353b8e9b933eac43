"""The vectors of tokens: what a model looks up for their ids, and a model that gets others instead.

Explanations see vectors in one shape, (rows, tokens, size). A model may look them up otherwise:
XLNet with tokens before rows, Longformer with padding at the end of each row, a decoder that
classifies texts with ids that are shifted by one, CTRL in order to change them in place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from handlers.errors import Unprocessable

NOT_FOUND = (
    "This model does not look up the vectors of its tokens in a way that gradients are known for;"
    " use method feature_ablation."
)


class TokenVectors(torch.nn.Module):
    """Looks up the vectors of token ids.

    It is a module because Captum explains the outputs of one.

    Args:
        layers: the layers that the model looks up vectors in, with the same weights; each lookup is
            one of the explained ids.
        has_own_decoder: whether a decoder reads other ids, with the same layer or another.
    """

    def __init__(self, layers: Sequence[torch.nn.Module], *, has_own_decoder: bool = False) -> None:
        super().__init__()
        self.layers = layers[:1] if has_own_decoder else layers
        self._has_own_decoder = has_own_decoder

    @property
    def dtype(self) -> torch.dtype:
        """The data type of the vectors."""
        return next(self.layers[0].parameters()).dtype

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the vectors of ids, which have gradients. Shape: (rows, tokens, size)."""
        layer = self.layers[0]
        with torch.no_grad():
            vectors = _tensor(layer(ids.to(next(layer.parameters()).device)))
        return vectors.detach().requires_grad_(torch.is_grad_enabled())

    @contextmanager
    def replaced(self, ids: torch.Tensor, vectors: torch.Tensor) -> Iterator[None]:
        """Have the model get vectors where it looks up ids within the block.

        Args:
            ids: the ids. Shape: (rows, tokens).
            vectors: their vectors. Shape: (rows, tokens, size).

        Raises:
            Unprocessable: the model does not look up these ids, or looks up others, too.
        """
        found = []

        def replace(_layer: torch.nn.Module, inputs: Any, options: Any, output: Any) -> Any:
            looked_up = next(iter((*inputs, *options.values())))
            own = _tensor(output)
            placed = self._placed(ids.to(own.device), looked_up, vectors.to(own), own)
            if placed is None:
                if self._has_own_decoder:
                    return output
                raise Unprocessable(NOT_FOUND)
            found.append(looked_up)
            # A copy, because some models change it in place.
            placed = placed.clone()
            return (placed, *output[1:]) if isinstance(output, tuple) else placed

        with ExitStack() as hooks:
            for layer in self.layers:
                handle = layer.register_forward_hook(replace, with_kwargs=True)
                hooks.callback(handle.remove)
            yield
        if not found:
            raise Unprocessable(NOT_FOUND)

    def _placed(
        self, ids: torch.Tensor, looked_up: torch.Tensor, vectors: torch.Tensor, own: torch.Tensor
    ) -> torch.Tensor | None:
        """Return vectors as the model looked them up; None if it looked up other ids.

        Args:
            ids: the explained ids.
            looked_up: those that the model has looked up.
            vectors: the vectors of the explained ids.
            own: those that the model has found.
        """
        if torch.equal(looked_up, ids):
            return vectors
        if torch.equal(looked_up, ids.T):
            return vectors.transpose(0, 1)
        if looked_up.ndim != ids.ndim or len(looked_up) != len(ids):
            return None
        width = ids.shape[1]
        if torch.equal(looked_up[:, :width], ids):
            return torch.cat([vectors, own[:, width:]], 1)
        is_shifted = looked_up.shape == ids.shape and torch.equal(looked_up[:, 1:], ids[:, :-1])
        if is_shifted and not self._has_own_decoder:
            return torch.cat([own[:, :1], vectors[:, :-1]], 1)
        return None


def _tensor(output: Any) -> torch.Tensor:
    """Return the vectors among the outputs of a layer; that of I-BERT has their scale, too."""
    vectors: torch.Tensor = output[0] if isinstance(output, tuple) else output
    return vectors
