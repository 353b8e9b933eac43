"""The bases of modes whose rows are images, alone or with a question: preprocessing and answers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from transformers import GenerationConfig, PreTrainedTokenizerBase, StoppingCriteriaList
from transformers.image_processing_utils import BaseImageProcessor
from typing_extensions import TypedDict

from ...batching.padding import ArrayRow, Tensors
from ...batching.rows import Outputs
from ...batching.tokenization import check_length, lowest_limit, tokenize
from ...checkpoints.checkpoint import Checkpoint
from ...checkpoints.probe_inputs import ArrayInputs
from ...config.handler_section import HandlerSection
from ...config.model_config import ModelConfig
from ...errors import DeadlineExceeded, RequestTooLarge, Unprocessable, WrongCheckpoint, summarize
from ...generation.checkpoint_defaults import check_beams, with_checked_defaults
from ...generation.detokenization import AS_GENERATED
from ...generation.stopping import DeadlineCriterion
from ...media.images import IMAGE, read_image
from ...model import Model
from ...process.deadline import Deadline
from ...types.model_info import IMAGE_COLUMN, Limits, Rows, Wire
from ...types.parameters import check_object, check_text
from ...types.request import Request
from .media import MediaInput, MediaTask

PIXELS = "pixel_values"
# What the two ways are compared on, in width and height.
TRIAL_SIZES = ((64, 48), (48, 80))
TOLERANCE = 1e-5
Arrays = Mapping[str, npt.NDArray[Any]]


class Preprocessor:
    """Makes the model inputs of an image.

    An image processor rescales in float64 and then subtracts and divides, each with a copy. Where a
    trial shows the same numbers, pixels are multiplied and added in float32 instead.

    Attributes:
        is_folded: whether rescaling and normalization are one step.
    """

    def __init__(self, image_processor: BaseImageProcessor) -> None:
        self._processor = image_processor
        self._scale, self._offset = _affine(image_processor)
        self.is_folded = all(self._folds(_noise(size)) for size in TRIAL_SIZES)

    def __call__(self, image: Image.Image) -> Arrays:
        """Return the arrays of an image in RGB.

        Raises:
            ValueError: the image processor does not take an image of this size.
        """
        return self._fold(image) if self.is_folded else self._process(image)

    def _process(self, image: Image.Image, **options: Any) -> Arrays:
        features = self._processor(images=image, return_tensors="np", **options)
        return {name: np.asarray(values[0]) for name, values in features.items()}

    def _fold(self, image: Image.Image) -> Arrays:
        arrays = self._process(image, do_rescale=False, do_normalize=False)
        pixels = np.multiply(arrays[PIXELS], self._scale, dtype=np.float32)
        return {**arrays, PIXELS: np.add(pixels, self._offset, out=pixels)}

    def _folds(self, image: Image.Image) -> bool:
        try:
            expected, found = self._process(image), self._fold(image)
        except Exception:  # noqa: BLE001 - each processor checks its arguments in its own way
            return False
        return expected.keys() == found.keys() and all(
            expected[name].shape == found[name].shape
            and expected[name].dtype == found[name].dtype
            and np.allclose(expected[name], found[name], rtol=0, atol=TOLERANCE)
            for name in expected
        )


def _affine(image_processor: Any) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Return what pixels from 0 to 255 are multiplied with, and what is added to them.

    Returns:
        Arrays of shape (channels, 1, 1).
    """
    rescales = getattr(image_processor, "do_rescale", None)
    factor = image_processor.rescale_factor if rescales else 1.0
    mean, std = 0.0, 1.0
    if getattr(image_processor, "do_normalize", None):
        mean, std = image_processor.image_mean, image_processor.image_std
    means, deviations = (
        np.atleast_1d(np.asarray(each, dtype=np.float64)).reshape(-1, 1, 1) for each in (mean, std)
    )
    scale, offset = factor / deviations, -means / deviations
    return scale.astype(np.float32), offset.astype(np.float32)


def _noise(size: tuple[int, int]) -> Image.Image:
    width, height = size
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


# 32 images of the size that most models read.
DEFAULT_BATCH_PIXELS = 32 * 224 * 224
# A red square of 64 x 64 pixels, as PNG in base64.
EXAMPLE = {
    "inputs": (
        "iVBORw0KGgoAAAANSUhEUgAAAEAAAABAAQMAAACQp+OdAAAAA1BMVEXIKChQLvxyAAAAD0lEQVR42mNgGAWj"
        "gHwAAAJAAAHgTR1EAAAAAElFTkSuQmCC"
    )
}
IMAGE_ROWS = Rows(
    kind="arrays",
    supports_packing=False,
    cost_unit="pixels",
    smaller_requests="fewer or smaller images",
)
# Declares a mode whose inputs are one image.
image_wire = partial(Wire, inputs=str, example=EXAMPLE, input_columns=(IMAGE_COLUMN,))
GREY_IMAGE = Image.new("RGB", (64, 64), "grey")
# Images of these sizes have rows of one shape where the image processor resizes all to one size.
PROBE_SIZES = ((64, 64), (96, 64), (64, 128), (512, 512))


@dataclass(frozen=True)
class ImageRow(ArrayRow):
    """The model inputs of one image.

    Attributes:
        height: the height of the image in pixels, before preprocessing.
    """

    height: int
    width: int


class ImageTask(MediaTask[ImageRow]):
    """A mode whose rows are images."""

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        super().__init__(checkpoint, settings, IMAGE, settings.max_image_bytes)
        self.image_processor = checkpoint.image_processor
        self._preprocessor = Preprocessor(self.image_processor)
        row = self.preprocess(GREY_IMAGE)
        # A model with images of one size takes them, however large they are.
        self._most_pixels = max(self.budget, row.size)

    def warmup_batches(self, config: ModelConfig, model: Model) -> list[list[Any]]:
        """Return grey images, two, as many as a batch has, and one."""
        row = self.preprocess(GREY_IMAGE)
        most = max(1, self.budget // row.cost)
        counts = dict.fromkeys(min(count, most) for count in (2, max(2, config.batchSize), 1))
        return [[row] * count for count in counts]

    def preprocess(self, image: Image.Image) -> ImageRow:
        """Return the row of an image in RGB.

        Raises:
            WrongCheckpoint: the model reads something else than pixels, as ImageGPT.
        """
        arrays = self._preprocessor(image)
        if PIXELS not in arrays:
            family = self.checkpoint.config.model_type
            raise WrongCheckpoint(
                "config.json",
                f"is of a {family} model, which reads {', '.join(arrays)}"
                " of an image, and this mode gives models its pixels",
                "use a checkpoint of another family, such as vit",
            )
        height, width = arrays[PIXELS].shape[-2:]
        return ImageRow(arrays, height * width, image.height, image.width)

    @property
    def graph_inputs(self) -> ArrayInputs:
        rows = [self.preprocess(GREY_IMAGE.resize(size)) for size in PROBE_SIZES]
        if len({row.shape for row in rows}) > 1:
            raise WrongCheckpoint(
                "preprocessor_config.json",
                "gives images of several sizes to the model, and an exported graph takes one",
                "use save_mode: pretrained, or give it a size of height and width",
            )
        return ArrayInputs(rows[0].features)

    @property
    def budget(self) -> int:
        """The maximum number of pixels in one forward, after preprocessing."""
        return self.settings.max_batch_pixels or DEFAULT_BATCH_PIXELS

    def read(self, item: MediaInput, file: bytes) -> list[ImageRow]:
        image = read_image(file, "The image", self.settings.max_image_pixels)
        return [self._row_of(part) for part in self.parts(item, image)]

    def parts(self, item: MediaInput, image: Image.Image) -> list[Image.Image]:
        """Return the images that are rows of an input: the image itself, or parts of it, too."""
        return [image]

    def _row_of(self, image: Image.Image) -> ImageRow:
        try:
            row = self.preprocess(image)
        except ValueError as error:
            raise Unprocessable(
                f"The image has {image.width:,} x {image.height:,} pixels, which the image"
                f" processor of this model does not take ({summarize(error)}); send a larger one."
            ) from None
        if row.size > self._most_pixels:
            raise RequestTooLarge(
                f"The image has {row.size:,} pixels after preprocessing, and this model takes"
                f" {self._most_pixels:,}; send a smaller image."
            )
        return row


def require_post_processing(image_processor: Any, name: str) -> Callable[..., Any]:
    """Return the method of an image processor that turns outputs into results.

    Raises:
        WrongCheckpoint: it has none of that name.
    """
    method = getattr(image_processor, name, None)
    if method is None:
        kind = type(image_processor).__name__
        raise WrongCheckpoint(
            "preprocessor_config.json",
            f"is that of {kind}, which has no {name}",
            "pack the preprocessor_config.json of a checkpoint of this mode",
        )
    found: Callable[..., Any] = method
    return found


def as_batch(outputs: Outputs) -> SimpleNamespace:
    """Return the outputs of a row as the methods of image processors read them, a batch of one.

    A `ModelOutput` would register its type at the first use, after which torch compiles some models
    once more.
    """
    return SimpleNamespace(
        **{name: torch.from_numpy(array)[None] for name, array in outputs.items()}
    )


FORM = '{"image": …, "question": …}'
QUESTION = "What is it?"
EXAMPLE_QUESTION = {"inputs": {"image": EXAMPLE["inputs"], "question": QUESTION}}


class ImageQuestionInput(TypedDict):
    """An image file, in base64 or as a data URI, and a question about it."""

    image: str
    question: str


@dataclass(frozen=True)
class ImageQuestion(MediaInput):
    """An image file and a question about it."""

    question: str


class ImageQuestionTask(ImageTask):
    """A mode whose rows are an image and a question, which one tokenizer reads."""

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        super().__init__(checkpoint, settings)
        self.tokenizer = checkpoint.text_tokenizer

    def parse(self, request: Request) -> ImageQuestion:
        file, question = self.read_inputs(request.inputs)
        parameters = self.read_parameters(request.parameters)
        question = check_text(question, "question", self.settings.max_characters)
        return ImageQuestion(self.files.file(file, "image"), parameters, question)

    def read_inputs(self, inputs: Any) -> tuple[Any, Any]:
        """Return the image and the question of a request, not yet checked.

        Raises:
            BadRequest: it has other keys.
        """
        given = check_object(inputs, FORM, ("image", "question"))
        return given["image"], given["question"]

    def read(self, item: Any, file: bytes) -> list[ImageRow]:
        tokens = self.tokens(item.question)
        return [with_tokens(row, tokens) for row in super().read(item, file)]

    def warmup_batches(self, config: ModelConfig, model: Model) -> list[list[Any]]:
        """Return grey images with a question."""
        tokens = self.tokens(QUESTION)
        return [
            [with_tokens(row, tokens) for row in batch]
            for batch in super().warmup_batches(config, model)
        ]

    def tokens(self, question: str) -> dict[str, np.ndarray[Any, Any]]:
        """Return the model inputs of a question, without the first dimension of a batch.

        Raises:
            RequestTooLarge: it has too many tokens, and is not truncated.
        """
        limits: dict[str, Any] = (
            {"truncation": True, "max_length": self.max_tokens} if self.truncates else {}
        )
        encoding = tokenize(self.tokenizer, [(question, None)], **limits)
        check_length(len(encoding["input_ids"][0]), self.max_tokens, "the question")
        return {name: np.asarray(ids[0], np.int64) for name, ids in encoding.items()}

    @property
    def truncates(self) -> bool:
        """Whether a question that is too long is truncated."""
        return self.max_tokens is not None and self.settings.truncation is not False

    @property
    def max_tokens(self) -> int | None:
        """The maximum number of tokens of a question."""
        return lowest_limit(self.settings.max_length, self.checkpoint.limit)

    @property
    def limits(self) -> Limits:
        return replace(super().limits, max_length=self.max_tokens, truncation=self.truncates)


def with_tokens(row: ImageRow, tokens: dict[str, np.ndarray[Any, Any]]) -> ImageRow:
    """Return the row of an image with the tokens of a question."""
    return replace(row, features={**row.features, **tokens})


# The maximum of new tokens of transformers' pipelines, where the checkpoint sets none.
NEW_TOKENS = 256
# GenerationConfig's own default, which a checkpoint without a limit may have written.
UNSET_MAX_LENGTH = 20
SEQUENCES = "sequences"
DECODER_PROMPT = "decoder_input_ids"


def answer_settings(
    checkpoint: Checkpoint, max_sequences: int, positions: int | None = None
) -> GenerationConfig:
    """Return a checkpoint's generation config as the pipelines use it for short answers.

    Answers are not sampled, since the rows of a batch would share random numbers.

    Args:
        max_sequences: the maximum number of beams.
        positions: the maximum number of tokens of an answer, with the one that the decoder starts
            with; None for no limit.

    Raises:
        WrongCheckpoint: the generation config has a value that no request may have.
    """
    base = checkpoint.generation_config
    config = copy.deepcopy(with_checked_defaults(base, checkpoint.config))
    check_beams(config, max_sequences)
    config.do_sample, config.num_return_sequences = False, 1
    if base.max_new_tokens is None and base.max_length in (None, UNSET_MAX_LENGTH):
        config.max_length, config.max_new_tokens = None, NEW_TOKENS
    if positions is not None and config.max_new_tokens is not None:
        config.max_new_tokens = min(config.max_new_tokens, positions - 1)
    return config


def generate_answers(
    model: Model, config: GenerationConfig, deadline: Deadline, max_tokens: int | None = None
) -> Callable[[Tensors], Mapping[str, torch.Tensor]]:
    """Return a function from a batch to the token ids of its answers, under `sequences`.

    It raises :class:`DeadlineExceeded` once the deadline has passed. A decoder's prompt and its
    answer have `max_tokens` at most.
    """

    def generate(batch: Tensors) -> Mapping[str, torch.Tensor]:
        criterion = DeadlineCriterion(deadline)
        own = _within(config, batch, max_tokens)
        ids = model.generate(batch, own, stopping_criteria=StoppingCriteriaList([criterion]))
        if criterion.reached:
            raise DeadlineExceeded
        return {SEQUENCES: ids}

    return generate


def _within(config: GenerationConfig, batch: Tensors, max_tokens: int | None) -> GenerationConfig:
    """Return a config whose new tokens fit after the prompt of the decoder."""
    if max_tokens is None or DECODER_PROMPT not in batch:
        return config
    room = max_tokens - batch[DECODER_PROMPT].shape[1]
    own = copy.deepcopy(config)
    own.max_length, own.max_new_tokens = None, min(config.max_new_tokens or room, room)
    return own


def answer_text(tokenizer: PreTrainedTokenizerBase, outputs: Outputs, **options: Any) -> str:
    """Return the text of a row's token ids."""
    ids = outputs[SEQUENCES].astype(int).tolist()
    return str(tokenizer.decode(ids, **{**AS_GENERATED, **options}))
