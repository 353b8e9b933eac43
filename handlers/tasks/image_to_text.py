"""An image to a text about it, such as a caption.

{"inputs": "<base64>"} -> [{"generated_text": "a cat on a sofa"}]

The body may also be the bytes of the image file.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any, ClassVar, NotRequired

from tokenizers import Encoding
from transformers import GenerationConfig, PreTrainedConfig
from typing_extensions import TypedDict

from ..batching.padding import Padding, run_in_groups, shape_of
from ..batching.rows import Outputs, RowOutcome
from ..checkpoints.checkpoint import Checkpoint
from ..config.handler_section import HandlerSection
from ..config.model_config import ModelConfig
from ..errors import RequestError, TextTooLong, WrongCheckpoint
from ..generation.checkpoint_defaults import with_checked_defaults
from ..generation.generator import IMAGE_TO_TEXT, Generator, Prompt
from ..generation.parameters import NAMES, Positive, SamplingParameters
from ..generation.stopping import GenerationState
from ..model import Model
from ..process.deadline import NO_DEADLINE, Deadline
from ..telemetry.metrics import Meter
from ..types.model_info import Exports, ModelOutputs, TaskDescription
from ..types.parameters import ANY, PipelineNames
from ..types.request import Request
from .bases.generated_text import Details, details
from .bases.image import IMAGE_ROWS, ImageRow, ImageTask, image_wire
from .bases.media import MediaInput

# The model types that write about an image without a prompt or a chat.
MODEL_TYPES = ("blip", "git", "vision-encoder-decoder")
# The default of the pipeline, where neither request nor checkpoint says otherwise.
NEW_TOKENS = 256
# GenerationConfig's own default, which a checkpoint without a limit may have written.
UNSET_MAX_LENGTH = 20
# A new token costs about as much as a patch of an image, which has this side in most models.
PATCH = 16


class Caption(TypedDict):
    """A text about an image, and its details where a request asks for them."""

    generated_text: str
    details: NotRequired[Details]


class ImageToTextParameters(SamplingParameters):
    """Parameters of one text; the generation config has the defaults."""

    pipeline_names: ClassVar[PipelineNames] = PipelineNames(
        ignored={**NAMES.ignored, "decoder_input_details": [False], "timeout": ANY}
    )

    max_new_tokens: Positive | None = None
    """Maximum new tokens. Without it, the checkpoint's, then 256."""


@dataclass(frozen=True, kw_only=True)
class ImagePrompt(Prompt):
    """An image as a prompt: arrays in place of tokens.

    Attributes:
        size: the pixels of the image after preprocessing.
    """

    size: int

    def __len__(self) -> int:
        return 1  # The token that the decoder starts with.

    @property
    def cost(self) -> int:
        """What it costs, in pixels."""
        return self.size + self.new_tokens * self.sequences * PATCH**2

    @property
    def shape(self) -> Hashable:
        """The shapes of its arrays, which rows of one batch have in common."""
        return shape_of(self.features)


class Task(ImageTask):
    """Texts about images; answers as the image-to-text pipeline of transformers 4 does."""

    auto_class = "AutoModelForImageTextToText"
    description = TaskDescription(
        image_wire(results=list[Caption], result_columns=("generated_text",)),
        outputs=ModelOutputs(("logits",)),
        rows=IMAGE_ROWS,
        exports=Exports(supported=False, one_forward=False),
    )
    parameters = ImageToTextParameters

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        super().__init__(checkpoint, settings)
        config = checkpoint.config
        if config.model_type not in MODEL_TYPES:
            raise WrongCheckpoint(
                "config.json",
                f"is that of a {config.model_type} model, which writes nothing without a prompt",
                "use a checkpoint of BLIP, GIT or VisionEncoderDecoder",
            )
        self.tokenizer = checkpoint.text_tokenizer
        self.generation_config = _generation_config(checkpoint)
        self._decoder = _decoder_config(config)
        self._padding = Padding({"input_ids": checkpoint.pad_token_id})

    def parse(self, request: Request) -> MediaInput:
        item = super().parse(request)
        parameters: ImageToTextParameters = item.parameters
        parameters.check(self.settings.max_sequences, int(self._decoder.vocab_size))
        if parameters.max_new_tokens and parameters.max_new_tokens > self.most_new_tokens:
            raise TextTooLong(
                f"max_new_tokens is {parameters.max_new_tokens:,}, and this model's texts have at"
                f" most {self.most_new_tokens:,} tokens; ask for fewer."
            )
        return item

    def encode(self, inputs: Sequence[MediaInput]) -> list[Any]:
        """Return the image of each input as a prompt."""
        return [
            images
            if isinstance(images, RequestError)
            else [self._prompt(image, item.parameters) for image in images]
            for item, images in zip(inputs, super().encode(inputs), strict=True)
        ]

    def run(
        self, model: Model, rows: Sequence[Any], meter: Meter, deadline: Deadline = NO_DEADLINE
    ) -> Sequence[RowOutcome]:
        generator = Generator(
            model,
            self.tokenizer,
            self.generation_config,
            self._padding,
            meter,
            deadline=deadline,
            layout=IMAGE_TO_TEXT,
        )
        generate = partial(generator.generate, budget=self.budget)
        return run_in_groups(generate, rows, attrgetter("shape"))

    def warmup_batches(self, config: ModelConfig, model: Model) -> list[list[Any]]:
        few = ImageToTextParameters(max_new_tokens=min(3, self.most_new_tokens))
        return [
            [self._prompt(row, few) for row in rows]
            for rows in super().warmup_batches(config, model)
        ]

    def decode(
        self, item: MediaInput, rows: Sequence[Any], outputs: Sequence[Outputs]
    ) -> list[dict[str, Any]]:
        texts: Sequence[GenerationState] = outputs[0]["texts"]
        return [
            {"generated_text": text.text, **details(rows[0], text, item.parameters)}
            for text in texts
        ]

    @property
    def most_new_tokens(self) -> int:
        """The maximum number of new tokens, after the one that the decoder starts with."""
        return int(self._decoder.max_position_embeddings) - 1

    @property
    def default_new_tokens(self) -> int:
        """The maximum number of new tokens of a request that sets none."""
        length = self.generation_config.max_length
        honours_length = length not in (None, UNSET_MAX_LENGTH)
        own = self.generation_config.max_new_tokens or (
            length - 1 if honours_length else NEW_TOKENS
        )
        return min(int(own), self.most_new_tokens)

    def _prompt(self, image: ImageRow, parameters: ImageToTextParameters) -> ImagePrompt:
        return ImagePrompt(
            features=image.features,
            encoding=Encoding(),
            parameters=parameters.settings,
            new_tokens=parameters.max_new_tokens or self.default_new_tokens,
            size=image.size,
        )


def _decoder_config(config: PreTrainedConfig) -> PreTrainedConfig:
    """Return the config of the part of a model that writes."""
    decoder: PreTrainedConfig = getattr(config, "decoder", None) or config.get_text_config()
    return decoder


def _generation_config(checkpoint: Checkpoint) -> GenerationConfig:
    """Return the generation config of a checkpoint, with the end token that its model looks for.

    BLIP ends a text at its separator, whatever the generation config says.
    """
    base = with_checked_defaults(checkpoint.generation_config, checkpoint.config)
    if checkpoint.config.model_type == "blip":
        base.eos_token_id = checkpoint.config.get_text_config().sep_token_id
    return base
