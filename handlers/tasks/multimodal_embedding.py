"""A text or an image to a vector in one space, by a model such as CLIP or SigLIP.

    {"inputs": "a red square"}            -> [0.013, -0.082, …]
    {"inputs": {"image": "<base64>"}}     -> [0.021, -0.064, …]

The body may also be the bytes of an image file. Texts and images of a batch are computed in
separate forwards. Vectors are the same as by transformers' `get_text_features` and
`get_image_features`, and as by sentence-transformers with a CLIP model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from tokenizers import Encoding
from transformers import PreTrainedConfig, PreTrainedModel
from typing_extensions import TypedDict

from ..batching.padding import Padding, RunOptions, Tensors, pad, run_in_groups, run_padded
from ..batching.rows import Outputs, Row, RowOutcome
from ..batching.tokenization import PlainEncoding, Window, check_length, lowest_limit, tokenize
from ..checkpoints.checkpoint import Checkpoint
from ..checkpoints.dual_encoder import (
    OUTPUT,
    SIGMOID_FAMILIES,
    DualEncoder,
    check_family,
    dimension_of,
    normalizes,
)
from ..checkpoints.sentence_transformers import Settings
from ..config.handler_section import HandlerSection
from ..config.model_config import ModelConfig
from ..errors import BadRequest, RequestError, Unprocessable, attempt
from ..model import Model
from ..process.deadline import NO_DEADLINE, Deadline, before
from ..telemetry.metrics import Meter
from ..types.model_info import (
    IMAGE_COLUMN,
    TEXT_COLUMN,
    Exports,
    Limits,
    ModelOutputs,
    TaskDescription,
    Wire,
)
from ..types.parameters import ANY, PipelineNames, check_text, json_type
from ..types.request import Request, TokenIds, as_token_ids
from .bases.embedding import VectorParameters, cut_vector
from .bases.image import IMAGE_ROWS, ImageTask
from .bases.media import FILE_CHARACTERS, MediaInput
from .bases.text import TruncationParameters, check_max_length

FORMS = 'a text, {"text": …} or {"image": …}'
WARMUP_TEXT = "a photo of a red square on a white wall"
# A token costs about as much as a patch of an image; models without patches have this side.
PATCH = 16
TEXT_INPUTS = ("input_ids", "attention_mask")
IMAGE_URI = "data:image/"


class MultimodalParameters(VectorParameters, TruncationParameters):
    """Parameters of a text or of an image."""

    # Dual encoders have no prompts that a kind of texts could choose.
    pipeline_names: ClassVar[PipelineNames] = PipelineNames(
        ignored=dict.fromkeys(
            ("batch_size", "input_type", "padding", "show_progress_bar", "task", "timeout"), ANY
        )
    )


class TextObject(TypedDict):
    """A text."""

    text: str


class ImageObject(TypedDict):
    """An image file, in base64 or as a data URI, or the URL of one on a host that is allowed."""

    image: str


@dataclass(frozen=True)
class TextInput:
    """A text to embed, or the ids of its tokens with special ones.

    Attributes:
        other: what an explanation compares it with.
    """

    text: str | TokenIds
    parameters: MultimodalParameters
    other: TextInput | ImageInput | None = None


@dataclass(frozen=True)
class ImageInput(MediaInput):
    """An image to embed.

    Attributes:
        other: what an explanation compares it with.
    """

    other: TextInput | ImageInput | None = None


@dataclass(frozen=True)
class TextRow(Window):
    """The tokens of a text.

    Attributes:
        token_cost: what a token costs, in pixels.
    """

    token_cost: int

    @property
    def cost(self) -> int:
        return len(self) * self.token_cost


class Task(ImageTask):
    """Vectors of texts and images.

    Attributes:
        dimension: the size of the vectors.
        token_cost: what a token costs, in pixels.
    """

    auto_class = "AutoModelForZeroShotImageClassification"
    description = TaskDescription(
        Wire(
            inputs=str | TextObject | ImageObject,
            results=list[float] | str,
            example={"inputs": "a red square"},
            input_columns=(TEXT_COLUMN, IMAGE_COLUMN),
        ),
        outputs=ModelOutputs((OUTPUT,), are_vectors=True),
        rows=replace(IMAGE_ROWS, smaller_requests="fewer texts, or fewer or smaller images"),
        exports=Exports(supported=False),
        service="embed",
    )
    parameters = MultimodalParameters

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        super().__init__(checkpoint, settings)
        self.tokenizer = checkpoint.text_tokenizer
        self.dimension = dimension_of(checkpoint.config)
        self._normalizes = normalizes(checkpoint.directory)
        self._truncate_dim = Settings.read(checkpoint.directory).truncate_dim
        # SigLIP is trained with texts of a fixed length.
        self._fills_texts = checkpoint.config.model_type in SIGMOID_FAMILIES
        self._text_inputs = [
            name for name in TEXT_INPUTS if name in ("input_ids", *self.tokenizer.model_input_names)
        ]
        self._pad_id = int(self.tokenizer.pad_token_id or 0)
        vision = getattr(checkpoint.config, "vision_config", None)
        patch = getattr(vision, "patch_size", None)
        self.token_cost = (patch if isinstance(patch, int) else PATCH) ** 2

    @classmethod
    def auto_class_for(cls, config: PreTrainedConfig) -> str:
        check_family(config)
        return cls.auto_class

    @property
    def wrapper(self) -> Callable[[PreTrainedModel], PreTrainedModel]:
        return DualEncoder

    @property
    def max_tokens(self) -> int | None:
        """The maximum number of tokens of a text."""
        return lowest_limit(self.settings.max_length, self.checkpoint.limit)

    @property
    def limits(self) -> Limits:
        return replace(
            super().limits,
            max_length=self.max_tokens,
            truncation=self.settings.truncation is not False,
        )

    def parse(self, request: Request) -> Any:
        parameters: MultimodalParameters = self.read_parameters(request.parameters)
        parameters.check_dimensions(self.dimension)
        return self.read_item(request.inputs, "inputs", parameters)

    def read_item(
        self, value: Any, name: str, parameters: MultimodalParameters
    ) -> TextInput | ImageInput:
        """Return a text or an image of a request.

        Args:
            name: where it is in the request, for errors.

        Raises:
            RequestError: it is neither, or too large.
        """
        kind, given = _only_item(value, name)
        if kind == "image":
            return ImageInput(self.files.file(given, name), parameters)
        return TextInput(self._checked_text(given, name), parameters)

    def encoding_cost(self, item: Any) -> int:
        return FILE_CHARACTERS * sum(isinstance(each, ImageInput) for each in _with_other(item))

    def encode(self, inputs: Sequence[Any]) -> list[Any]:
        items = [each for item in inputs for each in _with_other(item)]
        texts = iter(self._encode_texts([each for each in items if isinstance(each, TextInput)]))
        images = iter(super().encode([each for each in items if isinstance(each, ImageInput)]))
        return [
            _joined([next(texts if isinstance(each, TextInput) else images) for each in own])
            for own in map(_with_other, inputs)
        ]

    def run(
        self, model: Model, rows: Sequence[Any], meter: Meter, deadline: Deadline = NO_DEADLINE
    ) -> Sequence[RowOutcome]:
        def run_alike(alike: Sequence[Any]) -> Sequence[RowOutcome]:
            if not isinstance(alike[0], TextRow):
                return super(Task, self).run(model, alike, meter, deadline)
            return run_padded(
                before(deadline, model.forward),
                alike,
                RunOptions(padding=self.padding, budget=self.budget, per_token=(), meter=meter),
                collate=self.collate,
            )

        return run_in_groups(run_alike, rows, type)

    def collate(self, rows: Sequence[Any]) -> Tensors:
        """Return images as one batch, or texts."""
        if not isinstance(rows[0], TextRow):
            return super().collate(rows)
        padded = pad(rows, self.padding)
        return {name: padded[name] for name in self._text_inputs}

    def groups(self, rows: Sequence[Any]) -> list[Sequence[Any]]:
        texts = [row for row in rows if isinstance(row, TextRow)]
        images = [row for row in rows if not isinstance(row, TextRow)]
        return [*super().groups(images), *([texts] if texts else [])]

    def warmup_batches(self, config: ModelConfig, model: Model) -> list[list[Any]]:
        """Return batches of grey images, and a batch of texts before each."""
        (row,) = self._encode_texts([TextInput(WARMUP_TEXT, MultimodalParameters())])
        images = super().warmup_batches(config, model)
        return [batch for same_size in images for batch in (row * len(same_size), same_size)]

    def decode(self, item: Any, rows: Sequence[Any], outputs: Sequence[Outputs]) -> Any:
        parameters: MultimodalParameters = item.parameters
        wanted = parameters.normalize
        normalize = self._normalizes if wanted is None else wanted
        dimensions = self._dimensions(parameters)
        vector = cut_vector(outputs[0][OUTPUT], normalize=normalize, dimensions=dimensions)
        return parameters.result(vector)

    def vector(self, outputs: Outputs, parameters: MultimodalParameters) -> Any:
        """Return the dimensions of a vector that a request keeps, in their own length."""
        return cut_vector(outputs[OUTPUT], normalize=False, dimensions=self._dimensions(parameters))

    def _dimensions(self, parameters: MultimodalParameters) -> int | None:
        """Return how many dimensions are kept: as many as the checkpoint says by default."""
        return parameters.dimensions or self._truncate_dim

    @property
    def padding(self) -> Padding:
        """How the tokens of texts are padded."""
        is_left = self.tokenizer.padding_side == "left"
        return Padding({"input_ids": self._pad_id}, "left" if is_left else "right")

    def _checked_text(self, value: Any, name: str) -> str | TokenIds:
        """Return a text, or token ids.

        Raises:
            BadRequest: it is neither, or an image as a data URI.
            RequestTooLarge: it is too long.
        """
        limit = self.settings.max_characters
        ids = as_token_ids(value)
        if isinstance(ids, TokenIds):
            ids.check_length(limit)
            ids.check(self.checkpoint.vocab_size)
            return ids
        text = check_text(value, name, limit)
        if text[: len(IMAGE_URI)].lower() == IMAGE_URI:
            raise BadRequest(
                f'{name} is an image as a data URI, where a text is; send {{"image": …}}.'
            )
        return text

    def _encode_texts(self, items: Sequence[TextInput]) -> list[Any]:
        """Return the row of each text; one that is too long is cut or refused."""
        texts = [(item.text, None) for item in items if isinstance(item.text, str)]
        found = iter(tokenize(self.tokenizer, texts).encodings or () if texts else ())
        return [
            attempt(
                self._text_rows,
                item,
                _without_text(item.text) if isinstance(item.text, TokenIds) else next(found),
            )
            for item in items
        ]

    def _text_rows(self, item: TextInput, encoding: Encoding) -> list[TextRow]:
        cut = self._cut(item, encoding)
        return [TextRow(self._filled(cut.ids), cut, self.token_cost)]

    def _cut(self, item: TextInput, encoding: Encoding) -> Encoding:
        """Return the tokens of a text that the model reads.

        Raises:
            BadRequest: only special tokens would be left.
            RequestTooLarge: there are too many, and they are not to be cut.
        """
        wanted, length = item.parameters, len(encoding)
        if wanted.max_length is not None:
            check_max_length(self.tokenizer, wanted.max_length)
        if not (self.limits.truncation if wanted.truncate is None else wanted.truncate):
            check_length(length, self.max_tokens, "the text")
        limit = min(filter(None, (self.max_tokens, wanted.max_length)), default=length)
        if length <= limit:
            return encoding
        side = wanted.truncation_direction
        if isinstance(item.text, TokenIds):
            return _without_text(item.text.truncate(limit, side))
        options: dict[str, Any] = {"truncation": True, "max_length": limit}
        cut = tokenize(self.tokenizer, [(item.text, None)], truncation_side=side, **options)
        encodings: Any = cut.encodings
        return encodings[0]

    def _filled(self, ids: Sequence[int]) -> dict[str, list[int]]:
        """Return the inputs of a text, with padding where the model reads a fixed length."""
        length = (self.checkpoint.limit or 0) if self._fills_texts else 0
        row = pad([Row({"input_ids": ids})], self.padding, length)
        return {name: row[name][0].tolist() for name in self._text_inputs}


def _with_other(item: TextInput | ImageInput) -> list[TextInput | ImageInput]:
    """Return an input, and the one that it is compared with."""
    return [item, item.other] if item.other else [item]


def _joined(encoded: Sequence[list[Any] | RequestError]) -> list[Any] | RequestError:
    """Return the rows of several inputs in one list, or the first error."""
    rows: list[Any] = []
    for each in encoded:
        if isinstance(each, RequestError):
            return each
        rows += each
    return rows


def _without_text(ids: TokenIds) -> Any:
    """Return tokens that are the whole input: they have no places in a text."""
    return PlainEncoding(ids.ids, [0] * len(ids.ids))


def _only_item(inputs: Any, where: str) -> tuple[str, Any]:
    """Return whether inputs are a text or an image, and the one that they are.

    Args:
        where: the name of the inputs in the request, for errors.

    Raises:
        BadRequest: they are neither.
        Unprocessable: they are both.
    """
    if isinstance(inputs, (str, list, TokenIds)):
        return "text", inputs
    if isinstance(inputs, (bytes, bytearray)):
        return "image", inputs
    if isinstance(inputs, Mapping) and len(inputs) == 1:
        ((name, value),) = inputs.items()
        if name in ("text", "image"):
            return name, value
        if name == "b64":
            return "image", value
    if isinstance(inputs, Mapping) and inputs.keys() == {"text", "image"}:
        raise Unprocessable(
            f"{where} has a text and an image, and this model makes a vector of one of them; send"
            " each by itself."
        )
    raise BadRequest(f"{where} must be {FORMS}, and is {json_type(inputs)}.")
