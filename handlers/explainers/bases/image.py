"""The pixels of a model as a picture, and the importances of its patches as a heat map over it."""

from __future__ import annotations

import base64
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from typing_extensions import TypedDict

from ...batching.padding import ArrayRow, Tensors, group_by_shape, stack
from ...errors import Unprocessable
from ...media.images import png_in_base64
from ...model import Model
from ...process.deadline import Deadline
from ...tasks.base import Label
from ...tasks.bases.image import ImageRow, ImageTask
from ...types.parameters import BaselineImage, ImageExplanationParameters
from ...types.request import RequestState
from ..base import (
    AnyTarget,
    Attribution,
    AttributionBatch,
    AttributionTarget,
    Comparison,
    ExplainedModel,
    Values,
)
from ..page import ImageView, View
from ..targets.base import BaseExplanationTarget, LabelTarget

TaskT = TypeVar("TaskT", bound=ImageTask)
Array = npt.NDArray[Any]
PIXELS = "pixel_values"

# The longer side of a picture in an answer, in pixels.
LONGEST_SIDE = 512
JPEG_QUALITY = 90
# The colours of the page: blue supports the target, orange opposes it.
SUPPORTS, OPPOSES = (47, 127, 214), (229, 138, 31)
# A blurred image keeps as many colours along its longer side.
BLURRED_SIDE = 4


@dataclass(frozen=True)
class PixelScale:
    """How an image processor turns colours from 0 to 1 to the numbers that a model reads.

    Attributes:
        mean: what it subtracts from each channel.
        deviation: what it divides each channel by.
        crops: whether what a model reads may be a part of the image, or have a frame around it.
    """

    mean: Array
    deviation: Array
    crops: bool

    @classmethod
    def of(cls, image_processor: Any) -> PixelScale:
        """Return the scale of an image processor."""

        def setting(name: str, default: Any) -> Any:
            value = getattr(image_processor, name, None)
            return default if value is None else value

        normalizes = setting("do_normalize", False)
        mean = setting("image_mean", 0.0) if normalizes else 0.0
        deviation = setting("image_std", 1.0) if normalizes else 1.0
        unit = 1.0 if setting("do_rescale", True) else 1 / 255
        return cls(
            np.reshape(np.asarray(mean, dtype=np.float32), (-1, 1, 1)) * unit,
            np.reshape(np.asarray(deviation, dtype=np.float32), (-1, 1, 1)) * unit,
            crops=bool(setting("do_center_crop", False) or setting("do_pad", False)),
        )

    def to_colours(self, pixels: Array) -> Array:
        """Return colours from 0 to 255. Shape: (height, width, 3)."""
        colours = (pixels * self.deviation + self.mean) * 255
        three = np.broadcast_to(colours, (3, *colours.shape[1:]))
        return np.moveaxis(three, 0, -1).clip(0, 255).round().astype(np.uint8)

    def baseline(self, kind: BaselineImage, pixels: Array) -> Array:
        """Return what replaces an image. Shape: (channels, height, width)."""
        if kind == "blur":
            return _blurred(pixels)
        mean = pixels.mean(axis=(1, 2), keepdims=True)
        colour = mean if kind == "mean" else -self.mean / self.deviation
        return np.broadcast_to(colour.astype(pixels.dtype), pixels.shape)


def picture(scale: PixelScale, pixels: Array, height: int, width: int) -> Image.Image:
    """Return the image that a model reads, in its size, with the proportions that were sent.

    Args:
        scale: how its pixels were computed.
        pixels: what the model reads. Shape: (channels, height, width).
        height: the height of the image that was sent.
    """
    read = Image.fromarray(scale.to_colours(pixels))
    # What was cropped or padded has its own proportions, and those are not distorted.
    proportions = (read.width, read.height) if scale.crops else (width, height)
    longest = min(LONGEST_SIDE, max(read.size))
    size = [max(1, round(longest * side / max(proportions))) for side in proportions]
    return read.resize((size[0], size[1]), Image.Resampling.BILINEAR)


def heat_map(importances: Sequence[Sequence[float]], size: tuple[int, int]) -> Image.Image:
    """Return a picture to lay over an image: each patch in blue or orange, the weaker the clearer.

    Args:
        importances: the importance of each patch, row by row.
        size: width and height of the picture.
    """
    values = np.asarray(importances, dtype=np.float64)
    strength = np.abs(values) / (np.abs(values).max() or 1.0)
    colours = np.where((values >= 0)[..., None], SUPPORTS, OPPOSES)
    layers = np.concatenate([colours, (255 * strength).round()[..., None]], axis=-1)
    patches = Image.fromarray(layers.astype(np.uint8), "RGBA")
    return patches.resize(size, Image.Resampling.NEAREST)


def as_jpeg(image: Image.Image) -> str:
    """Return a picture as JPEG in base64."""
    stream = BytesIO()
    # With every colour of a small image; by default neighbours share theirs.
    image.save(stream, "JPEG", quality=JPEG_QUALITY, subsampling=0)
    return base64.b64encode(stream.getvalue()).decode("ascii")


def _blurred(pixels: Array) -> Array:
    """Return an image with some colours that flow into each other."""
    height, width = pixels.shape[1:]
    rows, columns = (
        max(1, round(BLURRED_SIDE * side / max(height, width))) for side in (height, width)
    )
    image = torch.from_numpy(pixels)[None].float()
    colours = torch.nn.functional.adaptive_avg_pool2d(image, (rows, columns))
    blurred = torch.nn.functional.interpolate(colours, (height, width), mode="bilinear")
    return blurred[0].numpy()


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
        """Divide an image into patches, almost squares, `resolution` at most along a side."""
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

    def collate(self) -> Tensors:
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
    collate: Callable[[Sequence[Any]], Tensors] = stack
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


class ImageExplanation(TypedDict):
    """An explanation of one number by the patches of an image.

    `attributions` has a number for each patch, row by row; their sum is `output` -
    `baseline_output` up to a delta. `importances` are the normalised attributions. `image` is what
    the model reads, as JPEG in base64, and `heat_map` a transparent PNG of the same `size`, height
    and width, to lay over it. `converged` is null for methods whose attributions need not sum to
    the output.
    """

    importances: list[list[float]]
    attributions: list[list[float]]
    heat_map: str
    image: str
    size: tuple[int, int]
    image_size: tuple[int, int]
    delta: float
    output: float
    baseline_output: float
    convergence_delta: float
    method: str
    converged: bool | None
    warning: str | None


class ImageExplanationTarget(BaseExplanationTarget[TaskT]):
    """The explanation target of a mode whose rows are images."""

    parameters = ImageExplanationParameters
    model_type = ExplainedImageModel
    example_parameters: ClassVar[Mapping[str, Any]] = {
        "method": "feature_ablation",
        "resolution": 2,
    }
    legacy_keys: ClassVar[Sequence[str]] = ("importances", "delta")
    default_method: ClassVar[str] = "integrated_gradients"
    default_without_gradients: ClassVar[str] = "occlusion"

    def __init__(self, task: TaskT) -> None:
        super().__init__(task)
        self._scale = PixelScale.of(task.image_processor)

    @abstractmethod
    def choose(self, state: RequestState) -> ImageTarget:
        """Return what is explained, by :meth:`target_at` or :meth:`similarity_target`.

        Raises:
            RequestError: the target cannot be understood.
        """

    @abstractmethod
    def describe(self, state: RequestState, selected: ImageTarget) -> dict[str, Any]:
        """Return the `prediction` and the `target` of the explanation."""

    def select(self, state: RequestState) -> list[ImageTarget]:
        return [self.choose(state)]

    def to_response(
        self,
        state: RequestState,
        selected: Sequence[ImageTarget],
        attributions: Sequence[Attribution],
    ) -> dict[str, Any]:
        target, found = selected[0], attributions[0]
        row: ImageRow = state.rows[0]
        patches = target.segments
        length = float(np.linalg.norm(found.values)) or 1.0
        importances = patches.grid(found.values / length)
        image = picture(self._scale, row.features[PIXELS], row.height, row.width)
        return {
            "importances": importances,
            "attributions": patches.grid(found.values),
            "heat_map": png_in_base64(heat_map(importances, image.size)),
            "image": as_jpeg(image),
            "size": [image.height, image.width],
            "image_size": [row.height, row.width],
            "delta": found.delta,
            "output": found.output,
            "baseline_output": found.baseline,
            "convergence_delta": found.delta,
            "converged": found.converged,
            **self.describe(state, target),
        }

    @staticmethod
    def views(explanation: Mapping[str, Any]) -> Iterator[View]:
        yield image_view(explanation)

    def explained(self, model: Model, deadline: Deadline) -> ExplainedImageModel:
        return ExplainedImageModel(
            forward=model.forward_with_gradients,
            has_gradients=model.has_gradients,
            budget=0 if model.runs_alone else self.task.budget,
            deadline=deadline,
            full_precision=model.capabilities.full_precision,
        )

    def target_at(self, state: RequestState, output: str, index: tuple[int, ...]) -> ImageTarget:
        """Return one number of the outputs of a request's image as a target of attribution."""
        score = float(state.outputs[0][output][index])
        return ImageTarget(state.rows[0], self.patches(state), output, index, score)

    def similarity_target(
        self, state: RequestState, output: str, comparison: Comparison, score: float
    ) -> ImageTarget:
        """Return the similarity of the vector of a request's image as a target of attribution."""
        return ImageTarget(state.rows[0], self.patches(state), output, (), score, comparison)

    def patches(self, state: RequestState) -> Patches:
        """Return the patches that a request asks for.

        Raises:
            Unprocessable: the model reads a list of patches, as SigLIP 2 of any resolution.
        """
        pixels, settings = state.rows[0].features[PIXELS], state.settings
        if pixels.ndim != 3:
            raise Unprocessable(
                "Images of this model are not explained: it reads a list of their patches, not"
                " their pixels; use a checkpoint for images of one size."
            )
        return Patches.divide(self._scale.baseline(settings.baseline, pixels), settings.resolution)


def image_view(
    explanation: Mapping[str, Any], box: tuple[float, float, float, float] | None = None
) -> ImageView:
    """Return the picture of an explanation with its heat map.

    Args:
        box: an object in the picture, as in :class:`ImageView`.
    """
    height, width = explanation["size"]
    return ImageView(
        "Importance for the target",
        explanation["image"],
        explanation["heat_map"],
        height,
        width,
        explanation["importances"],
        box,
    )


class ImageLabelExplanation(ImageExplanation):
    """Why an image got a label."""

    prediction: Label
    target: LabelTarget


class ImageLabelExplanationTarget(ImageExplanationTarget[TaskT]):
    """Explains the logit of one label, by default the one with the highest score."""

    results = ImageLabelExplanation
    example_target = 0

    @abstractmethod
    def labels(self, state: RequestState) -> Sequence[str]:
        """Return the labels of a request."""

    @abstractmethod
    def scores(self, state: RequestState) -> npt.NDArray[Any]:
        """Return the score of each label. Shape: (labels,)."""

    def number_of(self, state: RequestState, target: Any) -> int:
        """Return the number of the label that a request names.

        Raises:
            BadRequest: there is no such label.
        """
        return self.label_number(state, target)

    def logit(self, state: RequestState, number: int) -> ImageTarget:
        """Return the logit of a label as a target of attribution."""
        return self.target_at(state, "logits", (number,))

    def choose(self, state: RequestState) -> ImageTarget:
        return self.logit(state, self._number(state, self.scores(state)))

    def describe(self, state: RequestState, selected: ImageTarget) -> dict[str, Any]:
        scores = self.scores(state)
        number = self._number(state, scores)
        labels: list[Label] = [
            {"label": label, "score": score}
            for label, score in zip(self.labels(state), scores.tolist(), strict=True)
        ]
        return {
            "prediction": labels[int(scores.argmax())],
            "target": {**labels[number], "index": number},
        }

    def _number(self, state: RequestState, scores: npt.NDArray[Any]) -> int:
        wanted = state.settings.target
        return int(scores.argmax()) if wanted is None else self.number_of(state, wanted)
