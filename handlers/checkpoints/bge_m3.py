"""bge-m3: a vector of a text, and of each of its tokens a weight and a vector, in one forward.

    colbert_linear.pt    `weight` and `bias` of the layer that makes the vectors of tokens
    sparse_linear.pt     `weight` and `bias` of the layer that makes their weights

Chen et al.: M3-Embedding, 2024. Source of the files: FlagEmbedding 1.4,
`EncoderOnlyEmbedderM3Runner`.
"""

from __future__ import annotations

from pathlib import Path

import torch

from ..errors import WrongCheckpoint
from .checkpoint_files import BGE_M3
from .pooling import TextSlots
from .sentence_transformers import SentencePooling, SentenceTransformer, load_layers, read_weights

VECTORS, WEIGHTS = BGE_M3
TOKEN_VECTORS, TOKEN_WEIGHTS = "token_embeddings", "token_weights"


def token_layers(directory: Path) -> tuple[torch.nn.Linear, torch.nn.Linear]:
    """Return the layer of the vectors of tokens, and the layer of their weights.

    Raises:
        WrongCheckpoint: a file is damaged, or they take vectors of different sizes.
    """
    vectors, weights = (_read_linear(directory / name) for name in BGE_M3)
    if weights.out_features != 1 or weights.in_features != vectors.in_features:
        raise WrongCheckpoint(
            WEIGHTS,
            f"has a layer of {weights.in_features} to {weights.out_features} numbers, and {VECTORS}"
            f" takes {vectors.in_features}",
            "pack the files of one checkpoint",
        )
    return vectors, weights


class MultiVectorPooling(SentencePooling):
    """The vector of each text, and a vector of length 1 and a weight of each token, in float32."""

    def __init__(self, modules: SentenceTransformer) -> None:
        super().__init__(modules.pooling, load_layers(modules.directory, modules.layers))
        self.token_vectors, self.token_weights = token_layers(modules.directory)

    def outputs(
        self, values: torch.Tensor, slots: TextSlots, **inputs: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """Return the vectors of texts, (texts, size), and of slots: (rows, width, size or 1)."""
        values = values.float()
        return {
            **super().outputs(values, slots, **inputs),
            TOKEN_VECTORS: torch.nn.functional.normalize(self.token_vectors(values), dim=-1),
            TOKEN_WEIGHTS: torch.relu(self.token_weights(values)),
        }


def _read_linear(path: Path) -> torch.nn.Linear:
    """Return the layer of a file, which must have tensors alone."""
    try:
        weights = read_weights(path)
        size, hidden_size = weights["weight"].shape
        linear = torch.nn.Linear(hidden_size, size)
        linear.load_state_dict({name: each.float() for name, each in weights.items()})
    except Exception:  # noqa: BLE001 - torch raises errors of many kinds for damaged files
        # The message of torch recommends to load the file unsafely.
        raise WrongCheckpoint(
            path.name,
            "is not a pickle of the tensors weight and bias alone",
            "pack the file as FlagEmbedding has saved it",
        ) from None
    return linear
