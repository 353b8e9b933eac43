"""What a row costs an encoder to compute, so that its speed can be set against the machine's."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedConfig


def flops_per_row(config: PreTrainedConfig, lengths: Sequence[int]) -> float:
    """Return the mean operations of rows of some lengths in tokens, padding not counted.

    Counted are the matrix products of the layers of a BERT: four of attention's own, two of the
    feed-forward part, and the two between tokens, which grow with the square of the length. A
    multiplication and an addition are two operations; embeddings, norms and the head are left out.
    """
    size, wide = config.hidden_size, config.intermediate_size
    token = 2 * (4 * size * size + 2 * size * wide)
    rows = (length * token + 4 * length * length * size for length in lengths)
    return config.num_hidden_layers * sum(rows) / len(lengths)
