"""Integrated gradients, by Captum, with a number of steps that adapts to the model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from .base import AnyTarget, Attribution, AttributionBatch, BaseExplainer
from .bases.image import PixelBatch

Item = TypeVar("Item")


@dataclass(frozen=True)
class Interval:
    """An interval of the path of one row; the path runs from 0, the baseline, to 1, the input."""

    row: int
    start: float
    end: float

    def bisect(self) -> tuple[Interval, Interval]:
        """Return both halves of the interval."""
        middle = (self.start + self.end) / 2
        return Interval(self.row, self.start, middle), Interval(self.row, middle, self.end)


class IntegratedGradientsExplainer(BaseExplainer):
    """Integrated gradients along the straight line from a baseline to the input.

    Takes `n_steps` steps on the whole path, with Gauss-Legendre quadrature. By default the number
    of steps is adaptive: an interval whose attributions do not sum to its score difference is
    bisected.
    Sundararajan, Taly and Yan: Axiomatic Attribution for Deep Networks, 2017.
    """

    needs_gradients = True
    complete = True
    steps = 3
    tolerance = 0.02
    max_intervals = 40
    # In half precision the error is mostly rounding, which bisection does not reduce.
    max_intervals_in_half_precision = 4

    def forwards(self, target: AnyTarget, settings: Any) -> int:
        return int(settings.n_steps or self.steps)

    def attribute(self, batch: AttributionBatch, settings: Any) -> list[Attribution]:
        path = IntegrationPath(batch)
        whole = [Interval(row, 0.0, 1.0) for row in range(len(batch.targets))]
        if settings.n_steps:
            attributions = path.integrate(whole, settings.n_steps)
        else:
            attributions = self._integrate_adaptively(path, whole)
        return batch.to_attributions(attributions, path.scores(whole), per_segment=False)

    def _integrate_adaptively(
        self, path: IntegrationPath, whole: Sequence[Interval]
    ) -> torch.Tensor:
        """Return the value of each token or patch; intervals with a large error are bisected."""
        totals = [torch.zeros(1)] * len(whole)
        limit = self.max_intervals if path.exact else self.max_intervals_in_half_precision
        counts = [1] * len(whole)
        intervals = list(whole)
        while intervals:
            attributions = path.integrate(intervals, self.steps).double().cpu()
            errors = (attributions.sum(-1) - path.score_differences(intervals)).abs()
            converged = errors <= path.tolerances(intervals, self.tolerance)
            bisected: list[Interval] = []
            for interval, values, done in zip(
                intervals, attributions, converged.tolist(), strict=True
            ):
                if done or counts[interval.row] >= limit:
                    totals[interval.row] = totals[interval.row] + values
                else:
                    counts[interval.row] += 1
                    bisected += interval.bisect()
            intervals = bisected
        return torch.stack(totals)


class Explainer(IntegratedGradientsExplainer):
    """Integrates in the space of pixels, whose values are added up for each patch."""

    takes = PixelBatch


class IntegrationPath:
    """The straight line from the baseline's vectors to the input's vectors, for each row."""

    def __init__(self, batch: AttributionBatch) -> None:
        self._batch = batch
        self._end, self._start = batch.vectors(batch.inputs), batch.vectors(batch.baseline)
        self._scores = {
            (row, position): score
            for row, scores in enumerate(batch.scores())
            for position, score in zip((1.0, 0.0), scores, strict=True)
        }

    @property
    def exact(self) -> bool:
        """Whether the model computes in float32 or better."""
        return torch.finfo(self._batch.dtype).bits >= 32

    def integrate(self, intervals: Sequence[Interval], steps: int) -> torch.Tensor:
        """Return the value of each token or patch for each interval, the first dimension."""
        parts = self._chunks(intervals)
        return torch.cat([self._integrate_together(part, steps) for part in parts])

    def _integrate_together(self, intervals: Sequence[Interval], steps: int) -> torch.Tensor:
        from captum.attr import IntegratedGradients  # noqa: PLC0415 - at the first explanation

        rows = [interval.row for interval in intervals]
        attributions = IntegratedGradients(self._batch.score_vectors).attribute(
            self._points(rows, [interval.end for interval in intervals]),
            baselines=self._points(rows, [interval.start for interval in intervals]),
            additional_forward_args=self._inputs(rows),
            n_steps=steps,
            method="gausslegendre",
            internal_batch_size=self._batch.max_rows,
        )
        return self._batch.sum_vectors(torch.as_tensor(attributions).double(), rows)

    def scores(self, intervals: Sequence[Interval]) -> list[tuple[float, float]]:
        """Return the score at the end and at the start of each interval."""
        positions = [
            (interval.row, position)
            for interval in intervals
            for position in (interval.end, interval.start)
        ]
        scores = self._scores_at(positions).tolist()
        return list(zip(scores[::2], scores[1::2], strict=True))

    def score_differences(self, intervals: Sequence[Interval]) -> torch.Tensor:
        """Return the increase of the score over each interval. Shape: (intervals,)."""
        scores = torch.tensor(self.scores(intervals), dtype=torch.float64)
        return scores[:, 0] - scores[:, 1]

    def tolerances(self, intervals: Sequence[Interval], tolerance: float) -> torch.Tensor:
        """Return the maximum error of each interval. Shape: (intervals,).

        It is proportional to the length of the interval and at least the rounding error. The
        rounding error of scores below 1 is the rounding error of 1, the size of their terms.
        """
        whole = [Interval(interval.row, 0.0, 1.0) for interval in intervals]
        differences = self.score_differences(whole).abs()
        lengths = torch.tensor([max(0.1, interval.end - interval.start) for interval in intervals])
        magnitudes = torch.tensor(self.scores(intervals)).abs().amax(-1).clamp(min=1)
        rounding = 4 * torch.finfo(self._batch.dtype).eps
        return torch.maximum(tolerance * lengths * differences, rounding * magnitudes)

    @torch.no_grad()
    def _scores_at(self, positions: Sequence[tuple[int, float]]) -> torch.Tensor:
        new = [each for each in dict.fromkeys(positions) if each not in self._scores]
        for part in self._chunks(new):
            rows, fractions = [row for row, _ in part], [fraction for _, fraction in part]
            points = self._points(rows, fractions)
            scores = self._batch.score_vectors(points, *self._inputs(rows)).tolist()
            self._scores |= dict(zip(part, scores, strict=True))
        return torch.tensor([self._scores[position] for position in positions])

    def _chunks(self, items: Sequence[Item]) -> Iterator[Sequence[Item]]:
        """Yield as many items at a time as a forward pass may have rows."""
        size = self._batch.max_rows
        return (items[start : start + size] for start in range(0, len(items), size))

    def _points(self, rows: Sequence[int], fractions: Sequence[float]) -> torch.Tensor:
        weights = torch.tensor(fractions, dtype=self._end.dtype, device=self._end.device)
        chosen = list(rows)
        difference = self._end[chosen] - self._start[chosen]
        return self._start[chosen] + weights.view(-1, *[1] * (difference.ndim - 1)) * difference

    def _inputs(self, rows: Sequence[int]) -> tuple[torch.Tensor, ...]:
        return tuple(tensor[list(rows)] for tensor in (self._batch.inputs, *self._batch.extra))
