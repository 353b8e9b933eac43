"""Text to text generation: a text to another one, as an encoder-decoder is trained to write it.

{"inputs": "question: Who sings? context: Nina sings.", "parameters": {"max_new_tokens": 20}}
-> [{"generated_text": "Nina"}]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NotRequired

from pydantic import ValidationError
from transformers import PreTrainedConfig
from typing_extensions import TypedDict

from ..batching.padding import Padding
from ..batching.rows import Outputs
from ..batching.tokenization import Window
from ..checkpoints.checkpoint import Checkpoint
from ..config.handler_section import HandlerSection
from ..config.messages import describe_validation_error
from ..errors import RequestError, TextTooLong, WrongCheckpoint, attempt
from ..generation.generator import ENCODER_DECODER, Prompt
from ..generation.parameters import NotNegative, Positive, SamplingParameters
from ..generation.stopping import GenerationState
from ..types.model_info import Generation, ModelOutputs, Rows, TaskDescription, Wire
from ..types.parameters import ANY, PipelineNames, check_text
from ..types.request import Request, TextStream
from .bases.generated_text import Details, GenerationTask, details

Truncation = bool | Literal["longest_first", "only_first", "do_not_truncate"]
# The defaults of the pipelines, where neither request nor checkpoint says otherwise.
NEW_TOKENS = 256
NUM_BEAMS = 4
# GenerationConfig's own default, which a checkpoint without a limit may have written.
UNSET_MAX_LENGTH = 20
# Relative positions have no last one, and beams take memory for as many tokens.
MAX_DECODED = 4096
NOT_CUT = (None, False, "do_not_truncate")


class TextToTextParameters(SamplingParameters):
    """Parameters of one text; the checkpoint has the defaults for the task."""

    pipeline_names: ClassVar[PipelineNames] = PipelineNames(
        ignored={
            "batch_size": ANY,
            "decoder_input_details": [False],
            "diversity_penalty": [0],
            "num_beam_groups": [1],
            "padding": ANY,
            "penalty_alpha": [0],
            "return_full_text": [False],
            "return_tensors": [False],
            "return_text": [True],
            "return_type": [1],
            "use_cache": ANY,
            "watermark": [False],
        }
    )

    max_new_tokens: Positive | None = None
    """Maximum new tokens. Without it, `max_length`, then the checkpoint's, then 256."""
    max_length: Positive | None = None
    """Maximum tokens of the new text and the token that it starts with. Only without
    `max_new_tokens`."""
    min_length: NotNegative | None = None
    """Minimum tokens of the new text and the token that it starts with."""
    clean_up_tokenization_spaces: bool = False
    """Removes spaces before punctuation marks and abbreviated words."""
    truncation: Truncation | None = None
    """Cuts a text that is too long. Without it, as the YAML says."""

    @property
    def new_tokens(self) -> int | None:
        """The maximum number of new tokens; None if not set."""
        if self.max_new_tokens or self.max_length is None:
            return self.max_new_tokens
        return max(1, self.max_length - 1)


@dataclass(frozen=True)
class TextInput:
    """One text to read; `prompt` has the prefix that the checkpoint is trained with.

    `default_new_tokens` is the maximum of new tokens where the parameters set none. `source` and
    `target` are the tokens of its language and of the new text's; None for the checkpoint's.
    """

    prompt: str
    parameters: TextToTextParameters
    default_new_tokens: int
    stream: TextStream | None = None
    is_batch_item: bool = False
    source: int | None = None
    target: int | None = None


@dataclass(frozen=True)
class Preset:
    """What a checkpoint sets for a task.

    Attributes:
        prefix: the text before each text.
        new_tokens: the maximum number of new tokens of a request that sets none.
        defaults: the values of other parameters that a request omits.
    """

    prefix: str
    new_tokens: int
    defaults: Mapping[str, Any]


class TextToTextTask(GenerationTask[TextInput]):
    """A task of encoder-decoders; answers as its pipeline of transformers 4 does.

    Attributes:
        pipeline: the name of the pipeline, by which a checkpoint has settings for it.
        of_yaml: the defaults that the YAML sets.
    """

    auto_class = "AutoModelForSeq2SeqLM"
    layout = ENCODER_DECODER
    parameters = TextToTextParameters
    pipeline: ClassVar[str]

    @classmethod
    def for_config(cls, config: PreTrainedConfig) -> type[TextToTextTask]:
        # The auto class also has decoders that read sounds.
        if not config.is_encoder_decoder:
            raise WrongCheckpoint(
                "config.json",
                f"is of a {config.model_type} model, which has no encoder of texts",
                "serve an encoder-decoder, such as T5, BART or Marian",
            )
        return cls

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        super().__init__(checkpoint, settings)
        # Others, such as token types, are no inputs of these models.
        self.tokenizer.model_input_names = ["input_ids", "attention_mask"]
        self.of_yaml = self.defaults
        self.preset = self.preset_of(self.pipeline)
        self.defaults = {**self.preset.defaults, **self.of_yaml}

    def parse(self, request: Request) -> TextInput:
        parameters: TextToTextParameters = self.read_parameters(request.parameters)
        parameters.check(self.settings.max_sequences, self.vocabulary)
        text = check_text(request.inputs, "inputs", self.max_characters)
        # Spaces are removed from a whole text only.
        stream = None if parameters.clean_up_tokenization_spaces else request.stream
        preset = self.preset_for(request.parameters)
        prompt, default = preset.prefix + text, preset.new_tokens
        return TextInput(prompt, parameters, default, stream, request.is_batch_item)

    def encode(self, inputs: Sequence[TextInput]) -> list[list[Prompt] | RequestError]:
        texts = [(item.prompt, None) for item in inputs]
        rows = self.encode_texts(texts, [_is_cut(item.parameters) for item in inputs])
        return [self._row(item, row) for item, row in zip(inputs, rows, strict=True)]

    def decode(self, item: TextInput, rows: Sequence[Window], outputs: Sequence[Outputs]) -> Any:
        """Return the texts; the one text of an item of a list without a list around it."""
        found = [self._result(item, rows[0], text) for text in outputs[0]["texts"]]
        return found[0] if item.is_batch_item and len(found) == 1 else found

    def decoder_start(self, item: TextInput) -> list[int]:
        """Return the tokens that a decoder reads before those that it chooses."""
        first = self.generation_config.forced_bos_token_id if item.target is None else item.target
        return [self._start_token, *([] if first is None else [int(first)])]

    def token_ids(self, item: TextInput, row: Window) -> list[int]:
        """Return the tokens of a text."""
        return row.features["input_ids"]

    @property
    def max_tokens(self) -> int | None:
        """The maximum number of tokens of a text that the encoder reads."""
        positions = getattr(self.checkpoint.config, "max_encoder_position_embeddings", None)
        return min(filter(None, (super().max_tokens, positions)), default=None)

    @property
    def decoder_limit(self) -> int:
        """The maximum number of tokens that the decoder reads, with the one that it starts with."""
        return self.checkpoint.decoder_positions or MAX_DECODED

    @property
    def padding(self) -> Padding:
        return Padding(self._pad_ids(), "right")

    def defaults_for(self, given: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**self.preset_for(given).defaults, **self.of_yaml}

    def preset_for(self, given: Mapping[str, Any]) -> Preset:
        """Return the checkpoint's settings for a request with some parameters."""
        return self.preset

    def preset_of(self, pipeline: str) -> Preset:
        """Return what the checkpoint sets for a pipeline, over the pipeline's own defaults.

        Raises:
            WrongCheckpoint: its settings are no values of parameters.
        """
        config, base = self.checkpoint.config, self.generation_config
        own = dict((getattr(config, "task_specific_params", None) or {}).get(pipeline, {}))
        prefix = own.pop("prefix", getattr(config, "prefix", None)) or ""
        own = {name: own[name] for name in own if name in self.parameters.model_fields}
        honours_length = base.max_length not in (None, UNSET_MAX_LENGTH)
        length = own.pop("max_length", base.max_length) if honours_length else None
        new_tokens = own.pop("max_new_tokens", length - 1 if length else NEW_TOKENS)
        defaults = {"num_beams": NUM_BEAMS, "do_sample": bool(base.do_sample), **own}
        try:
            self.parameters.model_validate({**defaults, "max_new_tokens": new_tokens})
        except ValidationError as error:
            problem, _ = describe_validation_error(self.parameters, error)
            raise WrongCheckpoint(
                "config.json",
                f"has task_specific_params for {pipeline} in which {problem}",
                "correct them or remove them",
            ) from None
        return Preset(prefix, new_tokens, defaults)

    def _row(
        self, item: TextInput, row: list[Window] | RequestError
    ) -> list[Prompt] | RequestError:
        return row if isinstance(row, RequestError) else attempt(self._prompt, item, row[0])

    def _prompt(self, item: TextInput, row: Window) -> list[Prompt]:
        parameters = item.parameters
        requested, available = parameters.new_tokens, self.decoder_limit - 1
        if requested and requested > available:
            raise TextTooLong(
                f"max_new_tokens is {requested:,}, and this model's texts have at most"
                f" {available:,} tokens; ask for fewer."
            )
        shortest = parameters.min_length
        return [
            Prompt(
                {"input_ids": self.token_ids(item, row)},
                row.encoding,
                parameters.settings,
                requested or min(item.default_new_tokens, available),
                item.stream,
                options={} if shortest is None else {"min_length": shortest},
                first_token=item.target,
            )
        ]

    def _result(self, item: TextInput, row: Window, text: GenerationState) -> dict[str, Any]:
        written = text.text
        if item.parameters.clean_up_tokenization_spaces:
            written = self.tokenizer.clean_up_tokenization(written)
        return {
            self.description.wire.result_columns[0]: written,
            **details(row, text, item.parameters),
        }

    @property
    def _start_token(self) -> int:
        """The token that a decoder starts with; transformers' `generate` takes the same one."""
        named = (self.generation_config.decoder_start_token_id, self.generation_config.bos_token_id)
        return int(next(each for each in named if each is not None))


class GeneratedText(TypedDict):
    """One text that was generated for another."""

    generated_text: str
    details: NotRequired[Details]


class Task(TextToTextTask):
    """Any text for a text; answers as the text2text-generation pipeline of transformers 4 does."""

    pipeline = "text2text-generation"
    description = TaskDescription(
        Wire(
            inputs=str,
            results=GeneratedText | list[GeneratedText],
            example={
                "inputs": "Who sings in the bar? Nina sings in the bar near the river.",
                "parameters": {"max_new_tokens": 8},
            },
            result_columns=("generated_text",),
        ),
        outputs=ModelOutputs(("logits",), per_token=("logits",)),
        rows=Rows(supports_packing=False),
        generation=Generation(texts=True, is_encoder_decoder=True),
    )


def _is_cut(parameters: TextToTextParameters) -> bool | None:
    """Return whether a text that is too long is cut; None for what the YAML says."""
    return None if parameters.truncation is None else parameters.truncation not in NOT_CUT
