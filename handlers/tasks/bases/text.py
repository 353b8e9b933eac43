"""The base of modes whose rows are tokens of texts: tokenizer, truncation, padding and packing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Annotated, Any, ClassVar, TypeVar

import numpy as np
from pydantic import BeforeValidator, Field, PositiveInt
from transformers import BatchEncoding, PreTrainedTokenizerBase

from ...batching.padding import Padding, RunOptions, Side, Tensors, pad, run_in_groups, run_padded
from ...batching.rows import ADAPTER_IDS, Row, RowOutcome
from ...batching.sequence_packing import TILE, WIDTHS, run_packed
from ...batching.tokenization import (
    Text,
    Window,
    check_length,
    features,
    has_offsets,
    lowest_limit,
    tokenize,
    without_excess,
)
from ...checkpoints.architecture import first_position
from ...checkpoints.checkpoint import Checkpoint
from ...checkpoints.probe_inputs import TokenInputs
from ...compat.transformers import shortest_row
from ...config.handler_section import HandlerSection
from ...config.model_config import ModelConfig
from ...errors import BadRequest, RequestError, TextTooLong, Unprocessable, WrongConfig, attempt
from ...generation.chat import TemplateOptions, check_messages, prompt_of
from ...generation.parameters import MAX_TEMPLATE_ARGUMENTS
from ...model import GraphLimits, Model
from ...process.deadline import NO_DEADLINE, Deadline, before
from ...telemetry.metrics import Meter
from ...types.model_info import Limits
from ...types.parameters import Parameters, check_text, in_lower_case, json_type
from ...types.request import Request, TokenIds, TokenizedText
from ...types.structured_output import Tools
from ..base import BaseTask
from ..warmup import BatchingTrial

InputT = TypeVar("InputT")
RowT = TypeVar("RowT", bound=Row)

DEFAULT_LENGTHS = (16, 48)


class TruncationParameters(Parameters):
    """Whether a text that is too long is cut, and at which end."""

    truncate: bool | None = None
    """Cuts a text that is too long, instead of refusing it. Without it, `truncation` of the YAML.
    """
    truncation_direction: Annotated[Side, BeforeValidator(in_lower_case)] = "right"
    """The end of a text that is cut."""
    max_length: PositiveInt | None = None
    """Cuts a text to this number of tokens, where that is less than the model takes."""


def check_max_length(
    tokenizer: PreTrainedTokenizerBase, max_length: int, *, paired: bool = False
) -> None:
    """Check that a text, or a pair, that is cut to a number of tokens keeps some.

    Raises:
        BadRequest: all of them are special tokens.
    """
    special = tokenizer.num_special_tokens_to_add(paired)
    if max_length <= special:
        raise BadRequest(
            f"parameters: max_length is {max_length}, and {special} tokens of a row are special"
            " ones; allow more."
        )


class TextTask(BaseTask[InputT, RowT]):
    """A mode whose rows are tokens of texts.

    Attributes:
        default_batch_tokens: tokens in one forward where the YAML sets no `max_batch_tokens`.
        accelerator_batch_tokens: the same in predictions on an accelerator.
        one_row_batch_tokens: the same where all texts of a forward are in one row.
        new_tokens: tokens that are generated after warm-up rows.
        needs_offsets: whether results name characters of the text.
    """

    default_batch_tokens: ClassVar[int] = 1024
    accelerator_batch_tokens: ClassVar[int] = 4096
    one_row_batch_tokens: ClassVar[int] = 16384
    new_tokens: ClassVar[int] = 0
    needs_offsets: ClassVar[bool] = False

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        super().__init__(checkpoint, settings)
        self.tokenizer = checkpoint.tokenizer if self.needs_offsets else checkpoint.text_tokenizer
        # Explanations name the characters of each token.
        self.explains = self.explains and self.tokenizer.is_fast
        self._check_max_tokens()

    def run(
        self, model: Model, rows: Sequence[RowT], meter: Meter, deadline: Deadline = NO_DEADLINE
    ) -> Sequence[RowOutcome]:
        if not rows:
            return []
        if not model.capabilities.mixes_adapters and len(set(map(_adapter_of, rows))) > 1:
            run = partial(self.run, model, meter=meter, deadline=deadline)
            return run_in_groups(run, rows, _adapter_of)
        capabilities = model.capabilities
        options = RunOptions(
            padding=self.padding,
            budget=0 if model.runs_alone else self.forward_budget(model),
            per_token=self.description.outputs.per_token,
            meter=meter,
            postprocess=self.postprocess,
        )
        # A single row is packed for an engine that compiles each width, and for CUDA graphs.
        few_shapes = capabilities.compiles_shapes or capabilities.packs_one_row
        if capabilities.supports_packing and (len(rows) > 1 or few_shapes):
            return run_packed(
                before(deadline, model.forward_packed),
                rows,
                options,
                one_row=capabilities.packs_one_row,
                ahead=1 if capabilities.on_accelerator else 0,
            )
        return run_padded(
            before(deadline, model.forward),
            rows,
            options,
            padded_limit=model.padded_limit,
            collate=self.collate,
        )

    def collate(self, rows: Sequence[RowT]) -> Tensors:
        return pad(rows, self.padding)

    def warmup_batches(self, config: ModelConfig, model: Model) -> list[list[Any]]:
        """Return batches of the lengths that the YAML declares, with few rows, many and one.

        One row comes last: compilers treat a size of 1 as a special case. For an engine that
        compiles for each shape there is, unless the YAML declares lengths, also a row of every
        width that one alone may get, as wide as packed rows may be.
        """
        declared = config.handler.warmup_lengths or DEFAULT_LENGTHS
        max_tokens = (self.max_tokens or max(declared)) - self.new_tokens
        lengths = dict.fromkeys(min(length, max(1, max_tokens)) for length in declared)
        counts = [*sorted({2, max(2, config.batchSize)}), 1]
        shapes = dict.fromkeys(
            (max(1, min(count, self.forward_budget(model) // length)), length)
            for count in counts
            for length in lengths
        )
        batches = [[self._warmup_row(length)] * count for count, length in shapes]
        if config.handler.warmup_lengths or not model.capabilities.compiles_shapes:
            return batches
        widest = min(max_tokens, max(WIDTHS))
        return batches + [[self._warmup_row(width)] for width in range(TILE, widest + 1, TILE)]

    def run_warmup(self, model: Model, batches: Sequence[list[Any]]) -> None:
        if model.capabilities.packs_one_row and self.settings.cuda_graphs:
            budget = self.forward_budget(model)
            longest = min(self.max_tokens or budget, budget)
            texts = self.checkpoint.probe_rows(self.max_tokens).batches[0]
            limits = GraphLimits(budget, longest, self.description.outputs.per_token)
            model.record_graphs(texts, self.padding, limits)
        super().run_warmup(model, batches)

    def choose_batching(self, model: Model) -> None:
        """Have a model pack rows where the YAML and its outputs allow it, or else pad them."""
        if self.packs_rows:
            trial = self.checkpoint.probe_rows(self.max_tokens)
            model.pack(trial, self.padding, self.description.outputs.per_token)
        # Packed rows have no padding, also in graphs that were exported for them.
        if not model.capabilities.supports_packing:
            self.set_batching(model)

    def set_batching(self, model: Model) -> None:
        BatchingTrial(
            self.checkpoint,
            self.max_tokens,
            self.padding,
            self.description.outputs.names,
            self.description.outputs.per_token,
            generates=self.description.generation.texts,
        ).set_batching(model)

    @property
    def graph_inputs(self) -> TokenInputs:
        names = dict.fromkeys((*self.tokenizer.model_input_names, "attention_mask"))
        return TokenInputs(tuple(names), self.checkpoint.row_maker)

    @cached_property
    def budget(self) -> int:
        """The maximum number of tokens in one forward, padding included."""
        return self.settings.max_batch_tokens or self.default_batch_tokens

    def forward_budget(self, model: Model) -> int:
        if not model.capabilities.on_accelerator or self.settings.max_batch_tokens is not None:
            return self.budget
        if model.capabilities.packs_one_row:
            return max(self.budget, self.one_row_batch_tokens)
        return max(self.budget, self.accelerator_batch_tokens)

    @property
    def limits(self) -> Limits:
        return Limits(
            self.max_tokens,
            self.settings.max_rows,
            self.max_characters,
            self.truncation,
            self.max_total_tokens,
        )

    @cached_property
    def padding(self) -> Padding:
        """The padding of this checkpoint's rows."""
        first = first_position(self.checkpoint.config)
        return Padding(
            self._pad_ids(),
            "left" if self.tokenizer.padding_side == "left" else "right",
            unnumbered=first - 1 if first else None,
            min_width=shortest_row(self.checkpoint.config),
        )

    @cached_property
    def max_tokens(self) -> int | None:
        """The maximum number of tokens in a row: `max_length` or the checkpoint's limit."""
        return lowest_limit(self.settings.max_length, self.checkpoint.limit)

    def token_limit(self, own: int | None) -> int | None:
        """Return the maximum number of tokens in a row of a checkpoint with modules.

        Args:
            own: the limit that its modules have, which replaces the tokenizer's.
        """
        most = self.checkpoint.position_limit if own else self.checkpoint.limit
        return lowest_limit(self.settings.max_length or own, most)

    @property
    def max_total_tokens(self) -> int | None:
        """The maximum number of tokens in a row and what is generated after it."""
        return self.max_tokens

    @cached_property
    def max_characters(self) -> int:
        """The maximum number of characters in a text."""
        return self.settings.max_characters

    @cached_property
    def truncation(self) -> bool:
        """Whether a text that is too long is truncated: `truncation`, by default true."""
        return self.settings.truncation is not False

    def tokenize_media(self, request: Request) -> TokenizedText | None:
        """Return the tokens of a chat with files, with the tokens of its files.

        Returns:
            None for a request without files, which most modes do not read.

        Raises:
            RequestError: the request is wrong, or a file cannot be read.
        """
        return None

    def encode_texts(
        self,
        texts: Sequence[Text],
        truncate: Sequence[bool | None] = (),
        sides: Sequence[Side] = (),
        max_lengths: Sequence[int | None] = (),
        **options: Any,
    ) -> list[list[Window] | RequestError]:
        """Return a row for each text or pair; one that is too long is truncated or refused.

        Args:
            truncate: whether each is truncated; by default as the YAML says.
            sides: the side that each is truncated at; by default the tokenizer's.
            max_lengths: the number of tokens that each is truncated to, if that is less than the
                model takes.
        """
        if not texts:
            return []
        encoding = tokenize(self.tokenizer, texts, **options)
        rows = []
        for number, text in enumerate(texts):
            cut = {**options, "truncation_side": sides[number]} if sides else options
            wanted = truncate[number] if truncate else None
            shorter = max_lengths[number] if max_lengths else None
            rows.append(attempt(self.fit, text, encoding, number, cut, wanted, shorter))
        return rows

    def fit(
        self,
        text: Text,
        encoding: BatchEncoding,
        number: int,
        options: Mapping[str, Any],
        truncate: bool | None = None,
        max_length: int | None = None,
    ) -> list[Window]:
        """Return one text of an encoding as a row, truncated if it is too long.

        Args:
            truncate: whether it is truncated; by default as the YAML says.
            max_length: the number of tokens that it is truncated to, if that is less than the model
                takes.

        Raises:
            RequestTooLarge: it is too long, and is not truncated.
            BadRequest: it is truncated to no more than the special tokens.
        """
        if max_length is not None:
            check_max_length(self.tokenizer, max_length, paired=text[1] is not None)
        length = len(encoding["input_ids"][number])
        if not (self.truncation if truncate is None else truncate):
            check_length(length, self.max_tokens, "the text")
        limit = min(filter(None, (self.max_tokens, max_length)), default=length)
        if length > limit:
            if text[1] is not None:
                whole, side = encoding.encodings[number], options.get("truncation_side")
                text = without_excess(self.tokenizer, text, whole, (limit, limit), side)
            truncation = {"truncation": True, "max_length": limit}
            encoding = tokenize(self.tokenizer, [text], **{**options, **truncation})
            number = 0
        names = self.tokenizer.model_input_names
        return [Window(features(encoding, number, names), encoding.encodings[number])]

    def _warmup_row(self, length: int) -> Row:
        return self.checkpoint.row_maker.rows([length])[0]

    def _check_max_tokens(self) -> None:
        special = self.tokenizer.num_special_tokens_to_add()
        if self.max_tokens is not None and self.max_tokens <= special:
            raise WrongConfig(
                "handler.max_length",
                f"is {self.max_tokens}, and {special} tokens of each row are special ones",
                "allow more, or leave it out",
            )

    def _pad_ids(self) -> dict[str, int]:
        return {
            "input_ids": self.checkpoint.pad_token_id,
            "token_type_ids": self.tokenizer.pad_token_type_id,
        }


def _adapter_of(row: Row) -> int:
    """Return the number of the LoRA adapter of a row; 0 for the model itself."""
    return int(row.features.get(ADAPTER_IDS, [0])[0])


@dataclass(frozen=True)
class SingleText:
    """A text to read."""

    text: str
    parameters: Any


class SingleTextTask(TextTask[SingleText, Window]):
    """A mode whose input is one text, which is read as its `TruncationParameters` say."""

    def parse(self, request: Request) -> SingleText:
        parameters = self.read_parameters(request.parameters)
        return SingleText(check_text(request.inputs, "inputs", self.max_characters), parameters)

    def encode(self, inputs: Sequence[SingleText]) -> list[list[Window] | RequestError]:
        texts = [(item.text, None) for item in inputs]
        parameters = [item.parameters for item in inputs]
        truncate = [each.truncate for each in parameters]
        sides = [each.truncation_direction for each in parameters]
        return self.encode_texts(texts, truncate, sides, [each.max_length for each in parameters])


IDS_ONLY: dict[str, Any] = {"return_attention_mask": False, "return_token_type_ids": False}


class TokenizationParameters(Parameters):
    """Parameters of one text or chat to tokenize."""

    add_special_tokens: bool | None = None
    """Adds the tokenizer's special tokens. By default to a text; chat templates have their own."""
    add_generation_prompt: bool | None = None
    """Ends the prompt of a chat where the assistant's message begins. By default, unless the last
    message is continued."""
    continue_final_message: bool = False
    """Ends the prompt of a chat within its last message."""
    chat_template_kwargs: dict[str, Any] = Field(default={}, max_length=MAX_TEMPLATE_ARGUMENTS)
    """Arguments of the chat template."""
    tools: Tools = ()
    """Functions that the model may call in a chat."""


class DetokenizationParameters(Parameters):
    """Parameters of one list of token ids."""

    skip_special_tokens: bool = False
    """Leaves the special tokens out."""


def tokenize_request(task: BaseTask[Any, Any], request: Request) -> TokenizedText:
    """Return the tokens of a request, whose inputs are a text or the messages of a chat.

    Raises:
        RequestError: the inputs or parameters are wrong, or there are more tokens than a text may
            have characters.
    """
    task = _require_tokenizer(task)
    parameters = TokenizationParameters.of_request({}, request.parameters)
    if (found := task.tokenize_media(request)) is not None:
        return found
    is_chat = isinstance(request.inputs, list)
    text = _text_of(task, request.inputs, parameters)
    adds_special = parameters.add_special_tokens
    options: dict[str, Any] = {
        "add_special_tokens": not is_chat if adds_special is None else adds_special,
        **IDS_ONLY,
    }
    encoding = tokenize(task.tokenizer, [(text, None)], **options)[0]
    if len(encoding) > task.max_characters:
        raise TextTooLong(
            f"The text has {len(encoding):,} tokens, and this model takes"
            f" {task.max_characters:,} characters; send less."
        )
    ids = np.array(encoding.ids, dtype=np.int64)
    special = _special_tokens(task, set(encoding.ids))
    if not has_offsets(encoding):
        names = task.tokenizer.convert_ids_to_tokens(encoding.ids)
        return TokenizedText(text, ids, None, special, list(map(str, names)))
    offsets = np.array(encoding.offsets, dtype=np.int64).reshape(-1, 2)
    return TokenizedText(text, ids, offsets, special)


def detokenize_request(task: BaseTask[Any, Any], request: Request) -> str:
    """Return the text of a request's :class:`TokenIds`.

    Raises:
        BadRequest: there are none, one is not in the vocabulary, or a parameter is wrong.
        RequestTooLarge: there are more than a text may have characters.
    """
    task, ids = _require_tokenizer(task), request.inputs
    parameters = DetokenizationParameters.of_request({}, request.parameters)
    if not isinstance(ids, TokenIds):
        raise BadRequest(f"tokens must be a list of token ids, and is {json_type(ids)}.")
    ids.check_length(task.max_characters)
    ids.check(task.checkpoint.vocab_size)
    options = {**parameters.model_dump(), "clean_up_tokenization_spaces": False}
    return str(task.tokenizer.decode(list(ids.ids), **options))


def _require_tokenizer(task: BaseTask[Any, Any]) -> TextTask[Any, Any]:
    """Return a task that reads texts.

    Raises:
        Unprocessable: it reads something else.
    """
    if not isinstance(task, TextTask):
        raise Unprocessable(f"This model's mode is {task.settings.mode}; it has no tokenizer.")
    return task


def _text_of(task: TextTask[Any, Any], inputs: Any, parameters: TokenizationParameters) -> str:
    """Return a text, or the prompt of a chat."""
    limit = task.max_characters
    if not isinstance(inputs, list):
        return check_text(inputs, "inputs", limit)
    begins, continues = parameters.add_generation_prompt, parameters.continue_final_message
    options = TemplateOptions(
        not continues if begins is None else begins, continues, parameters.chat_template_kwargs
    )
    messages = check_messages(inputs, limit)
    return prompt_of(messages, task.tokenizer, limit, parameters.tools, options)


def _special_tokens(task: TextTask[Any, Any], ids: set[int]) -> dict[int, str]:
    """Return the names of the special tokens among ids; an unknown character is none of them."""
    tokenizer = task.tokenizer
    special = ids.intersection(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    return {number: str(tokenizer.convert_ids_to_tokens(number)) for number in special}
