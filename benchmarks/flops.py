"""Count the floating-point operations of an encoder, to compare with the machine's peak."""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedConfig


def flops_per_row(config: PreTrainedConfig, lengths: Sequence[int]) -> float:
    """Return the mean number of operations for rows of some lengths in tokens, without padding.

    It counts the matrix products in the layers of a BERT: four projections of attention, two of the
    feed-forward network, and the two products between tokens, which grow with the square of the
    length. A multiplication and an addition are two operations; embeddings, norms and the head are
    not counted.
    """
    size, inner = config.hidden_size, config.intermediate_size
    token = 2 * (4 * size * size + 2 * size * inner)
    rows = (length * token + 4 * length * length * size for length in lengths)
    return config.num_hidden_layers * sum(rows) / len(lengths)
