"""Integrated gradients of the word embeddings, from padding to the text.

Sundararajan, Taly and Yan: Axiomatic Attribution for Deep Networks, 2017; by Captum's
IntegratedGradients with Gauss-Legendre nodes. Steps are spent where they are needed: gradients over
a part of the way must sum to what the score gains there, and a part where they do not is halved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from captum.attr import IntegratedGradients

from handlers.explainers._attribution import Attribution, AttributionTarget
from handlers.explainers.base import AttributionBatch, BaseExplainer


@dataclass(frozen=True)
class Part:
    """A part of the way of one row, from 0 (all padding) to 1 (the text)."""

    row: int
    start: float
    end: float

    def halves(self) -> tuple[Part, Part]:
        """Return both halves of the part."""
        middle = (self.start + self.end) / 2
        return Part(self.row, self.start, middle), Part(self.row, middle, self.end)


class Explainer(BaseExplainer):
    """`n_steps` takes that many over the whole way; without it, as many as it takes."""

    needs_gradients = True
    complete = True
    steps = 3
    tolerance = 0.02
    most_parts = 40
    most_parts_in_half_precision = 4  # What is missed there is rounding; halving does not mend it.

    def forwards(self, target: AttributionTarget, settings: Any) -> int:
        return int(settings.n_steps or self.steps)

    def attribute(self, batch: AttributionBatch, settings: Any) -> list[Attribution]:
        path = IntegrationPath(batch)
        whole = [Part(row, 0.0, 1.0) for row in range(len(batch.targets))]
        if settings.n_steps:
            found = path.integrate(whole, settings.n_steps)
        else:
            found = self._as_finely_as_needed(path, whole)
        return batch.attributions(found, path.ends(whole), shared=False)

    def _as_finely_as_needed(self, path: IntegrationPath, whole: Sequence[Part]) -> torch.Tensor:
        """Return each token's value for each row; parts that miss what they gain are halved."""
        sums = [torch.zeros(1)] * len(whole)
        most = self.most_parts if path.exact else self.most_parts_in_half_precision
        taken = [1] * len(whole)
        parts = list(whole)
        while parts:
            found = path.integrate(parts, self.steps).double().cpu()
            missed = (found.sum(-1) - path.gains(parts)).abs()
            fine = missed <= path.allowed(parts, self.tolerance)
            halved: list[Part] = []
            for part, values, enough in zip(parts, found, fine.tolist(), strict=True):
                if enough or taken[part.row] >= most:
                    sums[part.row] = sums[part.row] + values
                else:
                    taken[part.row] += 1
                    halved += part.halves()
            parts = halved
        return torch.stack(sums)


class IntegrationPath:
    """The straight lines from each row's baseline to its text, in the space of embeddings."""

    def __init__(self, batch: AttributionBatch) -> None:
        self._batch = batch
        with torch.no_grad():
            device = next(batch.embeddings.parameters()).device
            self._end = batch.embeddings(batch.ids.to(device))
            self._start = batch.embeddings(batch.baseline.to(device))
        self._scores = {
            (row, place): score
            for row, ends in enumerate(batch.ends())
            for place, score in zip((1.0, 0.0), ends, strict=True)
        }

    @property
    def exact(self) -> bool:
        """Whether the model computes in float32 or better."""
        return torch.finfo(self._end.dtype).bits >= 32

    def integrate(self, parts: Sequence[Part], steps: int) -> torch.Tensor:
        """Return each token's value for each part. Shape: (parts, width)."""
        rows = [part.row for part in parts]
        found = IntegratedGradients(self._score_at).attribute(
            self._at(rows, [part.end for part in parts]),
            baselines=self._at(rows, [part.start for part in parts]),
            additional_forward_args=self._inputs(rows),
            n_steps=steps,
            method="gausslegendre",
            internal_batch_size=max(len(parts), self._batch.rows_at_once),
        )
        return torch.as_tensor(found).float().sum(-1)

    def ends(self, parts: Sequence[Part]) -> list[tuple[float, float]]:
        """Return the score at the end and at the start of each part."""
        points = [(part.row, place) for part in parts for place in (part.end, part.start)]
        scores = self._scores_at(points).tolist()
        return list(zip(scores[::2], scores[1::2], strict=True))

    def gains(self, parts: Sequence[Part]) -> torch.Tensor:
        """Return by how much the score grows over each part. Shape: (parts,)."""
        ends = torch.tensor(self.ends(parts), dtype=torch.float64)
        return ends[:, 0] - ends[:, 1]

    def allowed(self, parts: Sequence[Part], tolerance: float) -> torch.Tensor:
        """Return by how much each part may miss: its share of the whole, but not below rounding.

        A score below 1 was summed from terms of about that size, so it is rounded as if it were 1.
        """
        whole = self.gains([Part(part.row, 0.0, 1.0) for part in parts]).abs()
        shares = torch.tensor([max(0.1, part.end - part.start) for part in parts])
        sizes = torch.tensor(self.ends(parts)).abs().amax(-1).clamp(min=1)
        rounding = 4 * torch.finfo(self._end.dtype).eps
        return torch.maximum(tolerance * shares * whole, rounding * sizes)

    @torch.no_grad()
    def _scores_at(self, points: Sequence[tuple[int, float]]) -> torch.Tensor:
        new = [point for point in dict.fromkeys(points) if point not in self._scores]
        if new:
            rows, places = [row for row, _ in new], [place for _, place in new]
            scores = self._score_at(self._at(rows, places), *self._inputs(rows)).tolist()
            self._scores |= dict(zip(new, scores, strict=True))
        return torch.tensor([self._scores[point] for point in points])

    def _at(self, rows: Sequence[int], places: Sequence[float]) -> torch.Tensor:
        share = torch.tensor(places, dtype=self._end.dtype, device=self._end.device)[:, None, None]
        chosen = list(rows)
        return self._start[chosen] + share * (self._end[chosen] - self._start[chosen])

    def _inputs(self, rows: Sequence[int]) -> tuple[torch.Tensor, ...]:
        return tuple(tensor[list(rows)] for tensor in (self._batch.ids, *self._batch.extra))

    def _score_at(self, vectors: torch.Tensor, *inputs: torch.Tensor) -> torch.Tensor:
        with replaced(self._batch.embeddings, vectors):
            return self._batch.score(*inputs)


@contextmanager
def replaced(embeddings: torch.nn.Module, vectors: torch.Tensor) -> Iterator[None]:
    """Let the embeddings give these vectors within the block, whatever ids they are asked for."""
    handle = embeddings.register_forward_hook(lambda _module, _inputs, _output: vectors)
    try:
        yield
    finally:
        handle.remove()
