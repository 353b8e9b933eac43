"""The base of modes that compare texts by their vectors: prompts, truncation and rows of texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Self, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import AliasChoices, Field, PositiveInt
from transformers import BatchEncoding, PreTrainedConfig

from ...batching.padding import Side
from ...batching.rows import Outputs, Row
from ...batching.tokenization import Window, check_length, lowest_limit, tokenize
from ...checkpoints.architecture import attends_both_ways, base_class_for
from ...checkpoints.checkpoint import Checkpoint
from ...checkpoints.pooling import PoolingHead
from ...checkpoints.prompts import Prompts
from ...checkpoints.sentence_transformers import (
    MODULES,
    OUTPUT,
    PROMPT_MASK,
    PoolingConfig,
    PoolingMode,
    SentenceTransformer,
    has_modules,
)
from ...checkpoints.static_embedding import StaticConfig
from ...checkpoints.tokenizer_files import read_in_lower_case
from ...config.handler_section import HandlerSection
from ...errors import BadRequest, RequestError, TextTooLong, WrongCheckpoint, WrongConfig, attempt
from ...types.embeddings import PROMPT_KEYS, Precision, as_list, in_base64, quantized
from ...types.parameters import Parameters, check_text
from ...types.request import TokenIds
from .text import TextTask, TruncationParameters

InputT = TypeVar("InputT")
Vector = npt.NDArray[np.float32]
# The end of the names of causal language models, and their pooling.
CAUSAL = "ForCausalLM"
LAST: PoolingMode = "lasttoken"


class PromptParameters(TruncationParameters):
    """Parameters of each text that becomes a vector."""

    prompt_name: str | None = None
    """Name of a prompt of the checkpoint or of the YAML's `prompts`, which precedes the text.
    Without it, the default prompt of the checkpoint, if it has one."""
    prompt: str | None = None
    """Text that precedes the text, in place of a prompt with a name."""
    input_type: str | None = Field(
        default=None, validation_alias=AliasChoices("input_type", "task")
    )
    """What the text is, which chooses its prompt where no other parameter does: `query`,
    `document`, `classification`, `clustering`, or the name of a prompt. See
    [Prompts](sentence_embedding.md#prompts). Alias: `task`."""

    @classmethod
    def of_request(cls, defaults: Mapping[str, Any], given: Mapping[str, Any]) -> Self:
        """Return a request's parameters; one that chooses a prompt replaces all such defaults."""
        if any(given.get(name) is not None for name in PROMPT_KEYS):
            defaults = {name: each for name, each in defaults.items() if name not in PROMPT_KEYS}
        return super().of_request(defaults, given)


class VectorParameters(Parameters):
    """Parameters of each vector."""

    normalize: bool | None = None
    """Gives vectors a length of 1. Without it, as the modules of the checkpoint say."""
    dimensions: PositiveInt | None = None
    """Number of dimensions to keep, for models that were trained so (Matryoshka)."""
    precision: Precision = "float32"
    """Type of the numbers. `int8` and `uint8` scale each vector by its largest number, `binary` and
    `ubinary` have one bit for each dimension, 8 in a number."""
    encoding_format: Literal["float", "base64"] = "float"
    """A list of numbers, or the bytes of the array (little-endian) in base64."""

    def check_dimensions(self, most: int) -> None:
        """Check that a vector has as many numbers as are kept.

        Raises:
            BadRequest: it has fewer.
        """
        if self.dimensions is not None and self.dimensions > most:
            raise BadRequest(
                f"parameters: dimensions is {self.dimensions:,}, and the vectors of this model have"
                f" {most:,}; send fewer."
            )

    def result(self, vector: Vector) -> Any:
        """Return a vector in the type and the form of numbers, ready for JSON."""
        numbers = quantized(vector, self.precision)
        return in_base64(numbers) if self.encoding_format == "base64" else as_list(numbers)

    def encoded(self, result: Any) -> Any:
        """Return a vector that is a list of numbers in base64.

        A result of another shape, such as an object with a vector, stays.

        Raises:
            ValueError: they are no numbers of the type, or no vector.
        """
        if not isinstance(result, list):
            return result
        dtype = quantized(np.zeros(8, np.float32), self.precision).dtype
        given = np.asarray(result)
        numbers = given.astype(dtype)
        is_whole = dtype.kind == "f" or np.array_equal(numbers, given)
        if numbers.ndim != 1 or not is_whole:
            raise ValueError(f"a vector of {dtype} is needed")
        return in_base64(numbers)


def cut_vector(numbers: Any, *, normalize: bool, dimensions: int | None = None) -> Vector:
    """Return a vector, its first dimensions, or with a length of 1."""
    vector: Vector = np.asarray(numbers, dtype=np.float32)[:dimensions]
    return vector / max(float(np.linalg.norm(vector)), 1e-12) if normalize else vector


@dataclass(frozen=True)
class EmbeddedText:
    """A text, or the ids of its tokens with special ones, that becomes a vector.

    Attributes:
        text: the text with its prompt, or token ids as they are.
        truncate: whether it is cut if it is too long.
        side: the side that is cut.
        max_length: the number of tokens that it is cut to, if that is less than the model takes.
    """

    text: str | TokenIds
    prompt: str
    truncate: bool
    side: Side
    max_length: int | None = None


class EmbeddingTask(TextTask[InputT, Row]):
    """A mode of a sentence-transformers model; see `handlers/checkpoints/sentence_transformers.py`.

    A row's output is the vector of its text, before it is normalized at the end.
    """

    auto_class = "AutoModel"
    takes_prompts = True

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        super().__init__(checkpoint, settings)
        self.prompts = sorted(self._prompts.texts)
        self._check_default_prompt()
        if self.modules.limits.do_lower_case:
            read_in_lower_case(self.tokenizer)
        if not self.modules.pooling.include_prompt:
            # Made-up rows, at warm-up and in exports, have all inputs that the tokenizer names.
            self.tokenizer.model_input_names = [*self.tokenizer.model_input_names, PROMPT_MASK]

    @classmethod
    def auto_class_for(cls, config: PreTrainedConfig) -> str:
        return base_class_for(config)

    @property
    def packs_rows(self) -> bool:
        # Tokens of static embeddings do not read each other: the masks of packing cost more.
        return super().packs_rows and not self._is_static

    @property
    def _is_static(self) -> bool:
        return isinstance(self.checkpoint.config, StaticConfig)

    @cached_property
    def _unknown(self) -> int | None:
        """The token that is not pooled."""
        return getattr(self.checkpoint.config, "unknown_token_id", None)

    @cached_property
    def modules(self) -> SentenceTransformer:
        """What the checkpoint has behind its model."""
        config = self.checkpoint.config
        hidden_size = config.get_text_config().hidden_size
        found = SentenceTransformer.read(self.checkpoint.directory, int(hidden_size))
        if isinstance(config, StaticConfig) and config.normalizes is not None:
            found = replace(found, normalizes=config.normalizes)
        if self._unknown is not None:
            found = replace(found, pooling=PoolingConfig(include_prompt=False))
        return found if has_modules(self.checkpoint.directory) else self._without_modules(found)

    def _without_modules(self, found: SentenceTransformer) -> SentenceTransformer:
        """Return the modules that sentence-transformers gives a checkpoint that names none.

        Raises:
            WrongCheckpoint: the checkpoint is a model of chats, whose texts it reads as messages.
        """
        checkpoint = self.checkpoint
        if self._is_static:
            return found
        if checkpoint.tokenizer.chat_template:
            raise WrongCheckpoint(
                "tokenizer_config.json",
                f"has a chat template, and the checkpoint no {MODULES}, so that"
                " sentence-transformers reads its texts in the template",
                f"use a checkpoint with {MODULES}, or remove the template",
            )
        if attends_both_ways(checkpoint.config) or not checkpoint.architecture.endswith(CAUSAL):
            return found
        return replace(found, pooling=PoolingConfig(pooling_mode=LAST))

    @property
    def reduction(self) -> Callable[[], PoolingHead]:
        return self.modules.reduction

    @property
    def max_tokens(self) -> int | None:
        return self.token_limit(self.modules.max_length)

    def read_text(self, text: Any, name: str, parameters: PromptParameters) -> EmbeddedText:
        """Return a text, or a :class:`TokenIds`, with the prompt that parameters name.

        Raises:
            BadRequest: it is neither, or there is no prompt of that name.
            RequestTooLarge: it is too long.
        """
        prompt = self._prompt(parameters)
        truncate = self.truncation if parameters.truncate is None else parameters.truncate
        side = parameters.truncation_direction
        if isinstance(text, TokenIds):
            self._check_no_prompt(prompt)
            text.check_length(self.max_characters)
            text.check(self.checkpoint.vocab_size)
            return EmbeddedText(text, "", truncate, side, parameters.max_length)
        checked = check_text(text, name, self.max_characters)
        if prompt:
            checked = check_text(prompt + checked, f"prompt and {name}", self.max_characters)
        return EmbeddedText(checked, prompt, truncate, side, parameters.max_length)

    def encode_embedded(
        self, inputs: Sequence[Sequence[EmbeddedText]]
    ) -> list[list[Row] | RequestError]:
        """Return the rows of the texts of each input, or the first error among them."""
        rows = iter(self._encode([text for texts in inputs for text in texts]))
        return [_together([next(rows) for _ in texts]) for texts in inputs]

    def _encode(self, texts: Sequence[EmbeddedText]) -> list[Row | RequestError]:
        """Return the row of each text; one that is too long is cut or refused."""
        texts = [self._without_excess(each) for each in texts]
        written = [(each.text, None) for each in texts if isinstance(each.text, str)]
        encoding = tokenize(self.tokenizer, written) if written else BatchEncoding()
        numbers = iter(range(len(written)))
        return [
            attempt(self._of_ids, each, each.text)
            if isinstance(each.text, TokenIds)
            else attempt(self._of_text, each, encoding, next(numbers))
            for each in texts
        ]

    def _without_excess(self, text: EmbeddedText) -> EmbeddedText:
        """Return a text without the characters that model2vec does not read of it."""
        most = getattr(self.checkpoint.config, "max_characters", None)
        if most is None or not text.truncate or not isinstance(text.text, str):
            return text
        kept = text.text[-most:] if text.side == "left" else text.text[:most]
        return replace(text, text=kept)

    def vector(self, outputs: Outputs, *, normalize: bool, dimensions: int | None = None) -> Vector:
        """Return the vector of a row, its first dimensions, or with a length of 1.

        Without a number of dimensions, as many are kept as the checkpoint says.
        """
        kept = dimensions or self.modules.settings.truncate_dim
        return cut_vector(outputs[OUTPUT], normalize=normalize, dimensions=kept)

    @cached_property
    def _prompts(self) -> Prompts:
        """The prompts of the checkpoint, with the prompts of the YAML over them."""
        own = self.modules.settings
        return Prompts({**own.prompts, **self.settings.prompts}, own.default_prompt_name)

    def _prompt(self, parameters: PromptParameters) -> str:
        named, kind = parameters.prompt_name, parameters.input_type
        return self._prompts.choose(parameters.prompt, named, kind)

    def _check_default_prompt(self) -> None:
        """Refuse a default of the YAML that names no prompt.

        Raises:
            WrongConfig: it does.
        """
        try:
            self._prompt(self.read_parameters({}))
        except BadRequest as error:
            problem = str(error).removeprefix("parameters: ").removesuffix(".")
            raise WrongConfig(
                "handler.parameters", f"has a wrong prompt: {problem}", "add it to handler.prompts"
            ) from None

    def _check_no_prompt(self, prompt: str) -> None:
        """Refuse a prompt for token ids, which are read as they are; the default one is left out.

        Raises:
            BadRequest: a request chooses a prompt.
        """
        if prompt and prompt != self._prompt(self.read_parameters({})):
            raise BadRequest(
                "inputs are token ids, and a prompt precedes a text; send the text, or the ids of"
                " the prompt with its own, without prompt, prompt_name and input_type."
            )

    def _of_text(self, text: EmbeddedText, encoding: BatchEncoding, number: int) -> Row:
        options = {"truncation_side": text.side}
        (row,) = self.fit(
            (str(text.text), None), encoding, number, options, text.truncate, text.max_length
        )
        if not len(row) and self._is_static:  # The vector of padding is zero.
            return self._of_ids(text, TokenIds((self.checkpoint.pad_token_id,)))
        cut = len(encoding["input_ids"][number]) - len(row) if text.side == "left" else 0
        return Window({**row.features, **self._prompt_mask(text, row, cut)}, row.encoding)

    def _of_ids(self, text: EmbeddedText, ids: TokenIds) -> Row:
        limit = lowest_limit(self.max_tokens if text.truncate else None, text.max_length)
        if limit:
            ids = ids.truncate(limit, text.side)
        check_length(len(ids), self.max_tokens, "the text")
        others = set(self.tokenizer.model_input_names) - {"input_ids", "attention_mask"}
        zeros = {name: [0] * len(ids) for name in others}
        return Row({**zeros, "input_ids": list(ids.ids), **self._unknown_mask(ids.ids)})

    def _unknown_mask(self, ids: Sequence[int]) -> dict[str, list[int]]:
        """Return the mark of unknown tokens, which static embeddings of model2vec do not pool."""
        if self._unknown is None:
            return {}
        return {PROMPT_MASK: [int(each == self._unknown) for each in ids]}

    def _prompt_mask(self, text: EmbeddedText, row: Row, cut: int) -> dict[str, list[int]]:
        """Return the mark of the tokens that are not pooled, those up to the end of the prompt."""
        if self.modules.pooling.include_prompt:
            return {}
        if self._unknown is not None:
            return self._unknown_mask(row.features["input_ids"])
        length = len(row)
        marked = self._marked_tokens(text.prompt, cut) if text.prompt else 0
        if marked >= length:
            raise TextTooLong("The prompt leaves no tokens for the text; send a shorter one.")
        return {PROMPT_MASK: [1] * marked + [0] * (length - marked)}

    def _marked_tokens(self, prompt: str, cut: int) -> int:
        """Return the number of tokens before the text: the prompt and special tokens.

        Args:
            cut: how many tokens are cut on the left, where a special one stays.
        """
        ids = tokenize(self.tokenizer, [(prompt, None)])["input_ids"][0]
        first, last = (
            not set(end).isdisjoint(self.tokenizer.all_special_ids) for end in (ids[:1], ids[-1:])
        )
        return max(int(first), len(ids) - int(last) - cut)


def _together(rows: Sequence[Row | RequestError]) -> list[Row] | RequestError:
    """Return rows, or the first error among them."""
    error = next((each for each in rows if isinstance(each, RequestError)), None)
    return error or [each for each in rows if isinstance(each, Row)]
