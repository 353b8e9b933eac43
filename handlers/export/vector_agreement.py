"""The agreement of the vectors of two models: cosines, and the order of similarities."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from handlers.batching.rows import Outputs
from handlers.export.parity_report import ParityReport, VectorAgreement

# Rows whose pairs are compared; 500 have 124,750 pairs.
COMPARED_ROWS = 500

Matrix = npt.NDArray[np.float64]


def compare_vectors(expected: Iterable[Outputs], found: Iterable[Outputs]) -> ParityReport:
    """Compare the vectors of two models for the same rows, one row at a time.

    A row has one vector, or one for each token, whose mean is then compared with other rows'. Where
    a model has several outputs, the vectors of each are compared.

    Args:
        expected: the outputs of the checkpoint for each row.
        found: the outputs of the other model.
    """
    rows = 0
    cosines: list[Matrix] = []
    means: list[tuple[Matrix, Matrix]] = []
    for row, other in zip(expected, found, strict=True):
        rows += 1
        pairs = [(_vectors(row[name]), _vectors(other[name])) for name in row]
        cosines += [_cosines(*pair) for pair in pairs]
        if len(means) < COMPARED_ROWS:
            first, second = zip(*pairs, strict=True)
            means.append((_mean(first), _mean(second)))
    every = np.concatenate(cosines)
    similar = [_similarities(np.stack(each)) for each in zip(*means, strict=True)]
    agreement = VectorAgreement(
        float(every.mean()), float(every.min()), rank_correlation(*similar), len(similar[0])
    )
    return ParityReport(rows, 0, 1.0, 0.0, vectors=agreement)


def rank_correlation(first: Matrix, second: Matrix) -> float:
    """Return Spearman's rank correlation; 1 for fewer than two values.

    Equal values, which float32 similarities hardly have, get different ranks.
    """
    if len(first) < 2:
        return 1.0
    ranks = np.stack([np.argsort(np.argsort(each, kind="stable")) for each in (first, second)])
    return float(np.asarray(np.corrcoef(ranks))[0, 1])


def _vectors(values: Any) -> Matrix:
    """Return vectors without values that are not finite, which agree with nothing.

    The maps of a convolution are one vector.
    """
    array = np.asarray(values, dtype=np.float64)
    vectors = array if array.ndim == 2 else array.reshape(1, -1)
    return np.where(np.isfinite(vectors).all(-1, keepdims=True), vectors, 0.0)


def _mean(outputs: Sequence[Matrix]) -> Matrix:
    """Return the means of the vectors of all outputs, one after another."""
    return np.concatenate([vectors.mean(0) for vectors in outputs])


def _cosines(first: Matrix, second: Matrix) -> Matrix:
    """Return the cosine of each vector and its counterpart. Shape: (vectors,)."""
    lengths = np.linalg.norm(first, axis=-1) * np.linalg.norm(second, axis=-1)
    return np.asarray((first * second).sum(-1) / np.maximum(lengths, 1e-12))


def _similarities(vectors: Matrix) -> Matrix:
    """Return the cosine of each pair of rows. Shape: (pairs,)."""
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
    return np.asarray((unit @ unit.T)[np.triu_indices(len(unit), 1)])
