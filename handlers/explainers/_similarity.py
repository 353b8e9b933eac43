"""What explanations of the similarity of two texts have in common."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from handlers.batching.rows import Row
from handlers.batching.tokenization import Window
from handlers.errors import BadRequest
from handlers.explainers._attribution import AttributionTarget, Comparison, unit_vector
from handlers.explainers._segments import segment_tokens
from handlers.types.parameters import Granularity

Vector = npt.NDArray[np.float32]


def similarity_target(
    row: Row,
    text: str,
    output: str,
    vector: Vector,
    other: Vector | None,
    granularity: Granularity,
) -> AttributionTarget:
    """Return the cosine of the vectors of two texts as a target of attribution to the first.

    Without another text it is the length of the vector in its own direction: the cosine of a vector
    with itself is at its maximum, where its gradient is zero.

    Args:
        row: the row of the first text.
        text: the first text.
        output: the name of the output with its vector.
        vector: its vector, of the dimensions that are compared.
        other: the vector of the other text.
        granularity: tokens or words.

    Raises:
        BadRequest: the row is of token ids, which have no text.
    """
    if not isinstance(row, Window):
        raise BadRequest("Token ids are not explained; send a text.")
    segments = segment_tokens(row, [text], granularity)
    if other is not None:
        comparison, score = Comparison(torch.from_numpy(other)), cosine(vector, other)
    else:
        score = float(np.linalg.norm(vector))
        comparison = Comparison(torch.from_numpy(unit_vector(vector)), "dot")
    return AttributionTarget(row, segments, output, (), score, comparison)


def cosine(first: Vector, second: Vector) -> float:
    """Return the cosine of two vectors."""
    lengths = float(np.linalg.norm(first)) * float(np.linalg.norm(second))
    return float(np.dot(first, second)) / max(lengths, 1e-12)
