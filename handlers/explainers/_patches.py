"""Models whose rows are images, and the batches that are attributed to patches of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch

from handlers.batching.padding import Batch
from handlers.batching.shapes import ArrayRow, group_by_shape, stack
from handlers.explainers._attribution import AttributionTarget
from handlers.explainers.base import AnyTarget, AttributionBatch, ExplainedModel, Values

PIXELS = "pixel_values"

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Patches:
    """The grid of patches that an image is divided into, and the image that replaces them.

    Attributes:
        rows: the number of patches from top to bottom.
        columns: the number of patches from left to right.
        baseline: the image that replaces them. Shape: (channels, height, width).
    """

    rows: int
    columns: int
    baseline: Array

    @classmethod
    def divide(cls, baseline: Array, resolution: int) -> Patches:
        """Divide an image into patches, almost squares, at most so many along its longer side."""
        sides = baseline.shape[-2:]
        longest = max(sides)
        count = min(resolution, longest)
        rows, columns = (max(1, round(count * side / longest)) for side in sides)
        return cls(rows, columns, baseline)

    def __len__(self) -> int:
        return self.rows * self.columns

    def numbers(self) -> Array:
        """Return the number of the patch of each pixel, row by row. Shape: (height, width)."""
        height, width = self.baseline.shape[-2:]
        rows, columns = np.arange(height) * self.rows // height, np.arange(width) * self.columns
        return rows[:, None] * self.columns + columns // width

    def sums(self, values: Values) -> Values:
        """Return the sum of the values of each patch's pixels. Shape: (patches,)."""
        return np.bincount(self.numbers().ravel(), values.ravel(), len(self)).astype(np.float64)

    def grid(self, values: Values) -> list[list[float]]:
        """Return the values of patches as a list for each row of them."""
        found: list[list[float]] = values.reshape(self.rows, self.columns).tolist()
        return found


ImageTarget = AttributionTarget[ArrayRow, Patches]


class PixelBatch(AttributionBatch):
    """Images of one shape. Shape of inputs and baseline: (rows, channels, height, width)."""

    input_name = PIXELS
    model: ExplainedImageModel
    targets: Sequence[ImageTarget]

    def collate(self) -> Batch:
        return self.model.collate([target.row for target in self.targets])

    @property
    def shared_inputs(self) -> Sequence[str]:
        return self.model.shared_inputs

    def baseline_inputs(self) -> torch.Tensor:
        baselines = np.stack([target.segments.baseline for target in self.targets])
        return torch.from_numpy(baselines).to(self.inputs.dtype)

    @property
    def max_rows(self) -> int:
        return max(1, self.model.budget // max(1, self.targets[0].row.cost))

    def feature_mask(self) -> torch.Tensor:
        """Return the patch of each pixel. Shape: (rows, 1, height, width)."""
        numbers = [target.segments.numbers() for target in self.targets]
        return torch.from_numpy(np.stack(numbers))[:, None]

    def score_visible(
        self,
        visible: torch.Tensor,
        inputs: torch.Tensor,
        baseline: torch.Tensor,
        mask: torch.Tensor,
        *extra: torch.Tensor,
    ) -> torch.Tensor:
        """Return F of images of which some patches are replaced by the baseline. Shape: (rows,).

        Args:
            visible: 1 for a patch of the image and 0 for one of the baseline. Shape: (rows, rows of
                patches, columns of patches).
            inputs: the images.
            baseline: what replaces them.
            mask: the feature mask.
            extra: the other model inputs, as in :meth:`score`.
        """
        shown = visible.flatten(1).gather(1, mask.flatten(1)).view_as(mask)
        return self.score(torch.where(shown > 0, inputs, baseline), *extra)

    def vectors(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the pixels themselves. Shape: (rows, channels, height, width)."""
        return inputs

    def score_vectors(
        self, vectors: torch.Tensor, inputs: torch.Tensor, *extra: torch.Tensor
    ) -> torch.Tensor:
        return self.score(vectors, *extra)

    def sum_vectors(self, values: torch.Tensor, rows: Sequence[int]) -> torch.Tensor:
        """Return the sum over each patch. Shape: (rows, most patches of a row)."""
        # Patches are few: an integration in many intervals keeps no values of pixels.
        numbers = self.feature_mask()[list(rows)].flatten(1)
        most = max(len(target.segments) for target in self.targets)
        pixels = values.sum(1).flatten(1).cpu()
        return pixels.new_zeros(len(pixels), most).scatter_add(1, numbers, pixels)

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32 if self.model.full_precision else torch.bfloat16

    def segment_values(self, row: int, values: Values, *, per_segment: bool) -> Values:
        patches = self.targets[row].segments
        if not per_segment:
            return values[: len(patches)]
        # Every channel and every pixel of a patch has its value.
        return patches.sums(values[0]) / patches.sums(np.ones_like(values[0]))


@dataclass(frozen=True)
class ExplainedImageModel(ExplainedModel):
    """A model whose rows are images.

    Attributes:
        full_precision: whether it is known to compute in float32.
        collate: returns rows of one shape as a batch.
        shared_inputs: names of inputs of a batch that have no dimension of rows.
    """

    full_precision: bool
    collate: Callable[[Sequence[Any]], Batch] = stack
    shared_inputs: Sequence[str] = ()

    batch_type: ClassVar[type[AttributionBatch]] = PixelBatch
    rows_name: ClassVar[str] = "images"
    cheaper: ClassVar[str] = (
        "lower n_steps, n_samples or resolution, use input_x_gradient, or send a smaller image"
    )

    def group(self, targets: Sequence[AnyTarget]) -> Iterator[list[int]]:
        by_shared = defaultdict[Hashable, list[int]](list)
        for number, target in enumerate(targets):
            by_shared[tuple(target.row.shared)].append(number)
        for numbers in by_shared.values():
            for group in group_by_shape([targets[each].row for each in numbers], self.budget):
                yield [numbers[each] for each in group]
