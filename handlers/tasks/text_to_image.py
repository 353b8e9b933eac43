"""A prompt to images, by the text-to-image pipelines of diffusers.

    {"inputs": "a red circle", "parameters": {"num_inference_steps": 20, "seed": 7}}
    -> [{"image": "<base64>", "seed": 7}]

Each image has its own seed: the first one the seed of the request, each further one the next
number. It is the image that the pipeline makes with this seed: images are made one after the other,
because in a batch rounding would depend on the others.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, ClassVar, NotRequired

import numpy as np
import numpy.typing as npt
from PIL import Image
from pydantic import Field, PositiveInt
from typing_extensions import TypedDict

from ..batching.padding import Tensors
from ..batching.rows import BaseRow, Outputs, RowOutcome
from ..checkpoints.diffusion import DiffusionCheckpoint
from ..checkpoints.probe_inputs import GraphInputs
from ..config.handler_section import HandlerSection
from ..config.model_config import ModelConfig
from ..errors import (
    BadRequest,
    DeadlineExceeded,
    RequestTooLarge,
    Unprocessable,
    WrongConfig,
    attempt,
)
from ..media.images import IMAGE_TYPES, convert_png, png_in_base64
from ..model import ForwardOnlyModel, Model
from ..process.deadline import NO_DEADLINE, Deadline
from ..process.ranks import agree
from ..telemetry.metrics import Meter
from ..types.model_info import (
    Exports,
    Generation,
    Limits,
    ModelOutputs,
    ResultFiles,
    Rows,
    TaskDescription,
    Wire,
)
from ..types.parameters import ANY, Parameters, PipelineNames, check_text
from ..types.request import Request, StepStream
from .base import BaseTask

# Of most pipelines: the encoder of images halves a side three times.
SIDE_MULTIPLE = 8
# Where a pipeline's call has no default.
DEFAULT_STEPS = 50
# One image of the size that most models make.
DEFAULT_PIXELS = 512 * 512


@dataclass(frozen=True)
class ImageCall:
    """The call of a pipeline for one image.

    Attributes:
        scheduler: the name of diffusers' scheduler; None for the checkpoint's own.
        parameters: further parameters of the pipeline, which has defaults for others.
    """

    prompt: str
    seed: int
    scheduler: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PipelineImage:
    """An image as a pipeline returns it.

    Attributes:
        pixels: numbers from 0 to 1. Shape: (height, width, 3).
        flagged: whether a safety checker of the checkpoint made it black; None without one.
    """

    pixels: npt.NDArray[np.float32]
    flagged: bool | None = None


class ImageModel(ForwardOnlyModel, ABC):
    """A model that makes images of texts."""

    @abstractmethod
    def draw(self, call: ImageCall, on_step: Callable[[int, int], None]) -> PipelineImage:
        """Return the image of one call.

        Args:
            on_step: is called after each step with its number, from 1, and the number of steps.
                What it raises ends the call.

        Raises:
            Unprocessable: the pipeline does not take these parameters.
        """

    def forward(self, batch: Mapping[str, Any]) -> Mapping[str, Any]:
        raise NotImplementedError


class TextToImageParameters(Parameters):
    """Parameters of diffusers' text-to-image pipelines."""

    pipeline_names: ClassVar[PipelineNames] = PipelineNames(
        ignored={"batch_size": ANY, "output_type": ANY, "return_dict": ANY}
    )

    negative_prompt: str | None = None
    """What the image does not show."""
    num_inference_steps: PositiveInt | None = None
    """Number of steps, at most the YAML's `max_inference_steps`. Without it, the pipeline's."""
    guidance_scale: Annotated[float, Field(ge=0, le=100)] | None = None
    """How closely an image follows its prompt. Without it, the pipeline's."""
    height: Annotated[int, Field(ge=8, le=16_384)] | None = None
    """Pixels from top to bottom, a multiple of 8. Without it, the model's."""
    width: Annotated[int, Field(ge=8, le=16_384)] | None = None
    """Pixels from left to right, a multiple of 8. Without it, the model's."""
    num_images_per_prompt: PositiveInt = 1
    """Number of images, at most the YAML's `max_output_images`."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    """Seed of the first image; the next one has one more. Without it, a random one, which the
    result has."""
    scheduler: Annotated[str, Field(max_length=60)] | None = None
    """Name of a scheduler of diffusers, such as `EulerDiscreteScheduler`. Without it, the
    checkpoint's."""


class GeneratedImage(TypedDict):
    """An image as PNG in base64, with its seed.

    `nsfw_content_detected` is there where the checkpoint has a safety checker, which makes such
    images black.
    """

    image: str
    seed: int
    nsfw_content_detected: NotRequired[bool]


@dataclass(frozen=True)
class ImagePrompt:
    """The calls of the pipeline for a prompt, one for each image."""

    calls: Sequence[ImageCall]
    pixels: int
    progress: StepStream | None = None


@dataclass(frozen=True)
class ImageCallRow(BaseRow):
    """One image to make.

    Attributes:
        call: the call of the pipeline.
        pixels: the number of its pixels; an estimate where the request names no size.
        number: which of the images of its prompt it is.
        count: how many images its prompt has.
        progress: reports the steps; None where nobody listens.
    """

    call: ImageCall
    pixels: int
    number: int = 0
    count: int = 1
    progress: StepStream | None = None
    features: Mapping[str, Any] = field(default_factory=dict)

    @property
    def cost(self) -> int:
        return self.pixels


class Task(BaseTask[ImagePrompt, ImageCallRow]):
    """Text to image; answers with the images of diffusers' pipelines."""

    checkpoint_class = DiffusionCheckpoint
    checkpoint: DiffusionCheckpoint
    auto_class = "AutoPipelineForText2Image"
    description = TaskDescription(
        Wire(
            inputs=str,
            results=list[GeneratedImage],
            example={
                "inputs": "a red circle",
                "parameters": {"num_inference_steps": 20, "seed": 1},
            },
            result_columns=("image", "seed"),
            result_files=ResultFiles(
                tuple(IMAGE_TYPES), lambda image, kind: convert_png(image["image"], kind)
            ),
        ),
        outputs=ModelOutputs(("image",)),
        rows=Rows(
            supports_packing=False,
            cost_unit="pixels",
            smaller_requests="fewer or smaller images, or fewer num_inference_steps",
            smaller_results="fewer or smaller images, or fewer num_inference_steps",
        ),
        exports=Exports(supported=False, one_forward=False),
        generation=Generation(images=True),
    )
    parameters = TextToImageParameters

    def __init__(self, checkpoint: DiffusionCheckpoint, settings: HandlerSection) -> None:
        super().__init__(checkpoint, settings)
        if settings.truncation is False:
            raise WrongConfig(
                "handler.truncation", "is false, and pipelines cut prompts", "leave it out"
            )
        self._call_parameters = checkpoint.call_parameters

    def parse(self, request: Request) -> ImagePrompt:
        parameters: TextToImageParameters = self.read_parameters(request.parameters)
        prompt = check_text(request.inputs, "inputs", self.settings.max_characters)
        size = self._size(parameters)
        given = {
            "negative_prompt": self._negative_prompt(parameters),
            "num_inference_steps": self._steps(parameters),
            "guidance_scale": parameters.guidance_scale,
            **size,
        }
        given = {name: value for name, value in given.items() if value is not None}
        self._check_taken(given)
        count, seed = self._count(parameters), parameters.seed
        first = secrets.randbits(32) if seed is None else seed
        calls = [
            ImageCall(prompt, first + number, parameters.scheduler, given)
            for number in range(count)
        ]
        pixels = size["height"] * size["width"] if size else DEFAULT_PIXELS
        return ImagePrompt(calls, pixels, request.progress)

    def encode(self, inputs: Sequence[ImagePrompt]) -> list[list[ImageCallRow]]:
        return [
            [
                ImageCallRow(call, item.pixels, number, len(item.calls), item.progress)
                for number, call in enumerate(item.calls)
            ]
            for item in inputs
        ]

    def run(
        self,
        model: Model,
        rows: Sequence[ImageCallRow],
        meter: Meter,
        deadline: Deadline = NO_DEADLINE,
    ) -> Sequence[RowOutcome]:
        if not isinstance(model, ImageModel):
            raise NotImplementedError
        return [attempt(partial(_draw, model, deadline, meter), row) for row in rows]

    def decode(
        self, item: ImagePrompt, rows: Sequence[ImageCallRow], outputs: Sequence[Outputs]
    ) -> Any:
        return [_result(row, made) for row, made in zip(rows, outputs, strict=True)]

    def collate(self, rows: Sequence[ImageCallRow]) -> Tensors:
        raise NotImplementedError

    def warmup_batches(self, config: ModelConfig, model: Model) -> list[list[Any]]:
        """Return the call of an image of the model's own size, in two steps."""
        steps = {"num_inference_steps": min(2, self.settings.max_inference_steps)}
        return [[ImageCallRow(ImageCall("a picture", 0, None, steps), DEFAULT_PIXELS)]]

    def least_rows(self, item: ImagePrompt) -> int:
        return len(item.calls)

    @property
    def graph_inputs(self) -> GraphInputs:
        raise NotImplementedError

    @property
    def budget(self) -> int:
        """The maximum number of pixels of an image."""
        return self.settings.max_output_pixels

    @property
    def limits(self) -> Limits:
        return Limits(
            max_length=None,
            max_rows=self.settings.max_rows,
            max_characters=self.settings.max_characters,
            truncation=True,
        )

    def _negative_prompt(self, parameters: TextToImageParameters) -> str | None:
        if not parameters.negative_prompt:
            return None
        return check_text(
            parameters.negative_prompt, "negative_prompt", self.settings.max_characters
        )

    def _steps(self, parameters: TextToImageParameters) -> int:
        most, steps = self.settings.max_inference_steps, parameters.num_inference_steps
        if steps is None:
            default = self._call_parameters.get("num_inference_steps")
            return min(most, default if isinstance(default, int) else DEFAULT_STEPS)
        if steps > most:
            raise RequestTooLarge(
                f"num_inference_steps is {steps:,}, and this model takes {most:,}; send fewer."
            )
        return steps

    def _count(self, parameters: TextToImageParameters) -> int:
        most, count = self.settings.max_output_images, parameters.num_images_per_prompt
        if count > most:
            raise RequestTooLarge(
                f"num_images_per_prompt is {count:,}, and this model makes {most:,} a request; send"
                " several requests."
            )
        return count

    def _size(self, parameters: TextToImageParameters) -> dict[str, int]:
        """Return height and width; neither where a request leaves them to the model."""
        height, width = parameters.height, parameters.width
        if height is None and width is None:
            return {}
        if height is None or width is None:
            raise BadRequest("height and width belong together; send both, or neither.")
        most = self.settings.max_output_pixels
        if height * width > most:
            raise RequestTooLarge(
                f"An image of {width:,} x {height:,} pixels is larger than the {most:,} pixels that"
                " this model makes; send a smaller size."
            )
        if height % SIDE_MULTIPLE or width % SIDE_MULTIPLE:
            raise Unprocessable(
                f"height and width are {height} and {width}, and each has to be a multiple of"
                f" {SIDE_MULTIPLE}; send {_nearest(height)} and {_nearest(width)}."
            )
        return {"height": height, "width": width}

    def _check_taken(self, given: Mapping[str, Any]) -> None:
        lacking = next((name for name in given if name not in self._call_parameters), None)
        if lacking is not None:
            raise Unprocessable(
                f"{self.checkpoint.index.pipeline}, the pipeline of this model, has no {lacking};"
                " leave it out."
            )


def _draw(model: ImageModel, deadline: Deadline, meter: Meter, row: ImageCallRow) -> Outputs:
    """Return the outputs of one row.

    Raises:
        DeadlineExceeded: the deadline passes before its last step.
    """

    def on_step(step: int, steps: int) -> None:
        if row.progress is not None:
            row.progress.emit(row.number * steps + step, row.count * steps)
        if step < steps and agree(deadline.passed):
            raise DeadlineExceeded

    if agree(deadline.passed):
        raise DeadlineExceeded
    made = model.draw(row.call, on_step)
    meter.count(forwards=1)
    return {"image": made.pixels, "flagged": made.flagged}


def _result(row: ImageCallRow, outputs: Outputs) -> GeneratedImage:
    # As diffusers rounds.
    pixels = (np.asarray(outputs["image"]) * 255).round().astype(np.uint8)
    result = GeneratedImage(image=png_in_base64(Image.fromarray(pixels)), seed=row.call.seed)
    flagged = outputs["flagged"]
    return result if flagged is None else {**result, "nsfw_content_detected": flagged}


def _nearest(side: int) -> int:
    """Return the nearest multiple below."""
    return max(SIDE_MULTIPLE, side // SIDE_MULTIPLE * SIDE_MULTIPLE)
