"""Low-rank matrices that are trained in addition to a model, whose own stay as they are."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from transformers import PreTrainedModel

DOWN, UP = "down", "up"


class LowRank(nn.Module):
    """The sum of a matrix and the product of two small ones, which is 0 at first."""

    def __init__(self, weight: Tensor, rank: int) -> None:
        super().__init__()
        rows, columns = weight.shape
        self.down = nn.Parameter(torch.randn(rank, columns) / columns**0.5)
        self.up = nn.Parameter(torch.zeros(rows, rank))

    def forward(self, weight: Tensor) -> Tensor:
        """Return the sum."""
        return weight + self.up @ self.down


def add_low_rank(model: PreTrainedModel, rank: int, layers: int) -> None:
    """Let matrices of a rank be trained in the last layers of the encoder, and vectors as a whole.

    The embeddings and the matrices themselves are not trained; a new head is, and so is the pooler.
    """
    model.base_model.requires_grad_(False)
    if getattr(model.base_model, "pooler", None):
        model.base_model.pooler.requires_grad_(True)
    for layer in model.base_model.encoder.layer[-layers:]:
        for module in layer.modules():
            if isinstance(module, nn.Linear):
                low_rank = LowRank(module.weight, rank)
                parametrize.register_parametrization(module, "weight", low_rank)
        for weight in layer.parameters():
            if weight.dim() == 1:
                weight.requires_grad_(True)


def trained_tensors(model: PreTrainedModel) -> dict[str, Tensor]:
    """Return what has been trained: `<matrix>.down` and `.up`, and other weights by their name."""
    found = {}
    for name, weight in model.named_parameters():
        if weight.requires_grad:
            plain = name.replace("parametrizations.", "").replace(".weight.0.", ".weight.")
            found[plain] = weight.detach()
    return found


@torch.no_grad()
def merge(model: PreTrainedModel, tensors: dict[str, Tensor]) -> None:
    """Add what has been trained to a model as it was before.

    Raises:
        KeyError: when the model has no weight of a name.
    """
    weights = dict(model.named_parameters())
    for name, tensor in tensors.items():
        matrix, _, part = name.rpartition(".")
        if part == UP:
            weights[matrix] += tensor.float() @ tensors[f"{matrix}.{DOWN}"].float()
        elif part != DOWN:
            weights[name].copy_(tensor.float())
