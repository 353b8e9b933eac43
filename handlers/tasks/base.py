"""The interface of a task: parse -> encode -> run -> decode."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from transformers import BatchEncoding
from typing_extensions import TypedDict

from handlers.batching.packing import run_packed
from handlers.batching.padding import Padding, run
from handlers.batching.rows import Outputs, Row, RowOutcome
from handlers.batching.tokenization import Text, Window, check_length, tokenize, window
from handlers.checkpoints.checkpoint import Checkpoint
from handlers.checkpoints.text_reduction import TextReduction
from handlers.config.handler_section import HandlerSection
from handlers.errors import RequestError, WrongConfig, attempt
from handlers.runtime.deadline import NO_DEADLINE, Deadline, before
from handlers.runtime.model import Model
from handlers.schemas.model_info import TEXT_COLUMN, Columns, LegacyResponse, Operation
from handlers.schemas.parameters import Parameters
from handlers.schemas.request import Request
from handlers.telemetry.meter import Meter

QueryT = TypeVar("QueryT")
RowT = TypeVar("RowT", bound=Row)


class Label(TypedDict):
    """One class and how well it fits."""

    label: str
    score: float


class BaseTask(ABC, Generic[QueryT, RowT]):
    """A mode: converts requests to rows of tokens, and the outputs of a model to results.

    A task uses tokenizers, labels and shapes; it depends neither on the storage of weights nor on
    HTTP. It declares everything that is particular to its mode.

    Attributes:
        auto_class: name of the transformers auto class whose checkpoints it serves.
        outputs: names of the model outputs that `decode` reads.
        per_token: those of them that have a value for each token.
        parameters: the parameters of a request.
        inputs: type of the inputs of one request, for its schema.
        results: type of the result of one request, for its schema.
        sample: the body of a request that every model of the mode answers.
        input_columns: the columns that the inputs may have in a table, or the names of their
            tensors; the first are the usual ones.
        result_columns: the keys of a result that are columns in a table; none for one of JSON.
        takes_pairs: whether a list of two texts is one request, a pair, and not two of them.
        nests_single_result: whether Hugging Face's hub returns the result of one text in a list.
        legacy_response: the response of TorchServe's old example; None where it had no such mode.
        labels: names of the classes, by class number; empty where there are none.
        default_batch_tokens: tokens in one forward where the YAML sets no `max_batch_tokens`.
        packs: whether several rows may be packed into one where the model can run that.
        generates: whether results are generated texts, for which a format must generate.
        fastest_formats: the fastest format by type of device, for `save_mode: auto`; the checkpoint
            itself on all others.
        embeds: whether outputs are vectors, whose cosines are what has to agree in exports.
        operation: what the mode does under an embedding server's name, by which the protocols of
            such servers find it; None where they have no such thing.
        prompts: names of the checkpoint's prompts, which a request chooses by `prompt_name`.
        is_encoder_decoder: whether an encoder reads the inputs and a decoder writes these texts.
    """

    auto_class: ClassVar[str]
    outputs: ClassVar[tuple[str, ...]]
    per_token: ClassVar[tuple[str, ...]] = ()
    parameters: ClassVar[type[Parameters]]
    inputs: ClassVar[Any]
    results: ClassVar[Any]
    sample: ClassVar[Mapping[str, Any]]
    input_columns: ClassVar[Sequence[Columns]] = (TEXT_COLUMN,)
    result_columns: ClassVar[Sequence[str]] = ()
    takes_pairs: ClassVar[bool] = False
    nests_single_result: ClassVar[bool] = False
    legacy_response: ClassVar[LegacyResponse | None] = None
    labels: Sequence[str] = ()
    default_batch_tokens: ClassVar[int] = 1024
    packs: ClassVar[bool] = True
    generates: ClassVar[bool] = False
    fastest_formats: ClassVar[Mapping[str, str]] = {}
    embeds: ClassVar[bool] = False
    operation: ClassVar[Operation | None] = None
    prompts: Sequence[str] = ()
    is_encoder_decoder: ClassVar[bool] = False

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        self.checkpoint = checkpoint
        self.settings = settings
        self.tokenizer = checkpoint.tokenizer
        self.defaults = self.parameters.defaults_from(settings.parameters)
        self._check_max_tokens()

    @abstractmethod
    def parse(self, request: Request) -> QueryT:
        """Check one request.

        Raises:
            RequestError: it cannot be understood, or this model cannot do it.
        """

    @abstractmethod
    def encode(self, queries: Sequence[QueryT]) -> Sequence[Sequence[RowT] | RequestError]:
        """Return each query's rows; a query that cannot be encoded becomes its error."""

    @abstractmethod
    def decode(self, query: QueryT, rows: Sequence[RowT], outputs: Sequence[Outputs]) -> Any:
        """Return the result of a query, ready for JSON, from its rows and their outputs."""

    def keep(self, row: Row, outputs: Outputs) -> Outputs:
        """Return what is kept of a row's outputs until `decode`.

        A mode whose outputs are large copies the part that it reads, so that the rest is freed
        after each forward.
        """
        return outputs

    def adapter_of(self, query: QueryT) -> str | None:
        """Return the name of the LoRA adapter that a query chooses; None for the model itself."""
        return None

    @classmethod
    def example_inputs(cls, text: str) -> Any:
        """Return inputs of the words of a text, for benchmarks and tests.

        Rows have as many tokens as the text's row: each additional special token costs a word.
        """
        return text

    def run(
        self, model: Model, rows: Sequence[RowT], meter: Meter, deadline: Deadline = NO_DEADLINE
    ) -> Sequence[RowOutcome]:
        """Run the rows of a whole batch; returns the outcome of each row in order.

        A single row is packed only for an engine that compiles each width. Rows share a forward
        only where that changes no outputs: see :class:`Model`. Rows that the deadline
        leaves no time for have an error.
        """
        options: dict[str, Any] = {
            "padding": self.padding,
            "budget": 0 if model.runs_alone else self.budget,
            "per_token": self.per_token,
            "meter": meter,
            "keep": self.keep,
        }
        if model.packs and (len(rows) > 1 or model.compiles_shapes):
            return run_packed(before(deadline, model.forward_packed), rows, **options)
        return run(
            before(deadline, model.forward), rows, padded_limit=model.padded_limit, **options
        )

    @property
    def reduction(self) -> Callable[[], TextReduction] | None:
        """Returns what reduces the model's outputs for tokens in its graph; None for no reduction.

        `outputs` then has the name that the reduction writes.
        """
        return None

    @property
    def padding(self) -> Padding:
        """The padding of this checkpoint's rows."""
        return Padding(
            self._pad_ids(), "left" if self.tokenizer.padding_side == "left" else "right"
        )

    @property
    def budget(self) -> int:
        """The maximum number of tokens in one forward, padding included."""
        return self.settings.max_batch_tokens or self.default_batch_tokens

    @property
    def max_tokens(self) -> int | None:
        """The maximum number of tokens in a row: `max_length` or the checkpoint's limit."""
        limits = [self.settings.max_length, self.checkpoint.limit]
        return min((limit for limit in limits if limit), default=None)

    @property
    def max_total_tokens(self) -> int | None:
        """The maximum number of tokens in a row and what is generated after it."""
        return self.max_tokens

    @property
    def max_characters(self) -> int:
        """The maximum number of characters in a text."""
        return self.settings.max_characters

    @property
    def truncation(self) -> bool:
        """Whether a text that is too long is truncated: `truncation`, by default true."""
        return self.settings.truncation is not False

    def encode_texts(
        self, texts: Sequence[Text], truncate: Sequence[bool | None] = (), **options: Any
    ) -> list[list[Window] | RequestError]:
        """Return a row for each text or pair; one that is too long is truncated or refused.

        Args:
            texts: the texts or pairs.
            truncate: whether each is truncated; by default as the YAML says.
            **options: the options of the tokenizer.
        """
        if not texts:
            return []
        encoding = tokenize(self.tokenizer, texts, **options)
        wanted = truncate or [None] * len(texts)
        return [
            attempt(self.fit, text, encoding, number, options, wanted[number])
            for number, text in enumerate(texts)
        ]

    def fit(
        self,
        text: Text,
        encoding: BatchEncoding,
        number: int,
        options: Mapping[str, Any],
        truncate: bool | None = None,
    ) -> list[Window]:
        """Return one text of an encoding as a row, truncated if it is too long.

        Args:
            text: the text or pair.
            encoding: the encoding of several texts.
            number: the number of the text in it.
            options: the options of the tokenizer.
            truncate: whether it is truncated; by default as the YAML says.

        Raises:
            RequestTooLarge: it is too long, and is not truncated.
        """
        length = len(encoding["input_ids"][number])
        truncate = self.truncation if truncate is None else truncate
        if self.max_tokens is not None and length > self.max_tokens and truncate:
            truncation = {"truncation": True, "max_length": self.max_tokens}
            encoding = tokenize(self.tokenizer, [text], **{**options, **truncation})
            number, length = 0, self.max_tokens
        check_length(length, self.max_tokens, "the text")
        return [window(encoding, number, self.tokenizer.model_input_names)]

    def read_parameters(self, given: Mapping[str, Any]) -> Any:
        """Return a request's parameters, checked, over the YAML's defaults."""
        return self.parameters.of_request(self.defaults, given)

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
