"""What every task does: parse -> encode -> run -> decode."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from transformers import BatchEncoding

from handlers.batching.packing import run_packed
from handlers.batching.padding import Padding, run
from handlers.batching.rows import Outputs, Row
from handlers.batching.tokenization import Text, Window, check_length, tokenize, window
from handlers.checkpoints.checkpoint import Checkpoint
from handlers.config.handler_section import HandlerSection
from handlers.errors import RequestError, WrongConfig, attempt
from handlers.runtime.model import Model
from handlers.schemas.parameters import Parameters
from handlers.schemas.request import Request
from handlers.telemetry.meter import Meter

QueryT = TypeVar("QueryT")
RowT = TypeVar("RowT", bound=Row)


class BaseTask(ABC, Generic[QueryT, RowT]):
    """A mode: turns requests into rows of tokens and a model's outputs into answers.

    A task knows tokenizers, labels and shapes; it knows neither how weights are stored nor HTTP.

    Attributes:
        auto_class: name of the transformers auto class whose checkpoints it serves.
        outputs: names of the model outputs that `decode` reads.
        per_token: those of them that have a value for each token.
        parameters: what a request may set.
        usual_budget: tokens in one forward where the YAML sets no `max_batch_tokens`.
        inputs: type of what one request asks about, for its schema.
        results: type of the answer to one request, for its schema.
        sample: a body that every model of the mode answers.
        labels: names of the classes, by class number; empty where there are none.
        generates: whether it needs a format that can generate.
        packs: whether rows may be laid end to end where the model can run that.
    """

    auto_class: ClassVar[str]
    outputs: ClassVar[tuple[str, ...]]
    per_token: ClassVar[tuple[str, ...]] = ()
    parameters: ClassVar[type[Parameters]]
    inputs: ClassVar[Any]
    results: ClassVar[Any]
    sample: ClassVar[Mapping[str, Any]]
    labels: Sequence[str] = ()
    usual_budget: ClassVar[int] = 1024
    packs: ClassVar[bool] = True
    generates: ClassVar[bool] = False

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        self.checkpoint = checkpoint
        self.settings = settings
        self.tokenizer = checkpoint.tokenizer
        self.defaults = self.parameters.defaults_from(settings.parameters)
        self._check_room()

    @abstractmethod
    def parse(self, request: Request) -> QueryT:
        """Check one request.

        Raises:
            RequestError: when it cannot be understood or done.
        """

    @abstractmethod
    def encode(self, queries: Sequence[QueryT]) -> Sequence[Sequence[RowT] | RequestError]:
        """Return each query's rows; a query that cannot be encoded becomes its error."""

    @abstractmethod
    def decode(self, query: QueryT, rows: Sequence[RowT], outputs: Sequence[Outputs]) -> Any:
        """Return a query's answer, ready for JSON, from its rows and what came out for them."""

    def run(self, model: Model, rows: Sequence[RowT], meter: Meter) -> Sequence[Outputs]:
        """Run the rows of a whole batch; returns each row's outputs in order.

        A row alone is as wide as it is, unless few widths are better.
        """
        options: dict[str, Any] = {
            "padding": self.padding,
            "budget": self.budget,
            "per_token": self.per_token,
            "meter": meter,
        }
        if model.packs and (len(rows) > 1 or model.compiles_shapes):
            return run_packed(model.forward_packed, rows, **options)
        return run(model.forward, rows, **options)

    @property
    def padding(self) -> Padding:
        """How this checkpoint's rows are padded."""
        return Padding(
            self._pad_ids(), "left" if self.tokenizer.padding_side == "left" else "right"
        )

    @property
    def budget(self) -> int:
        """How many tokens, padding counted, one forward may hold."""
        return self.settings.max_batch_tokens or self.usual_budget

    @property
    def longest(self) -> int | None:
        """The longest row in tokens: the YAML's `max_length` or the checkpoint's own limit."""
        limits = [self.settings.max_length, self.checkpoint.limit]
        return min((limit for limit in limits if limit), default=None)

    @property
    def longest_text(self) -> int:
        """The longest text in characters."""
        return self.settings.max_characters

    @property
    def truncates(self) -> bool:
        """Whether a text that is too long is cut; the YAML's `truncation`, by default yes."""
        return self.settings.truncation is not False

    def encode_texts(
        self, texts: Sequence[Text], **options: Any
    ) -> list[list[Window] | RequestError]:
        """Return a row for each text or pair; one that is too long is cut or refused.

        Options go to the tokenizer.
        """
        if not texts:
            return []
        encoding = tokenize(self.tokenizer, texts, **options)
        return [
            attempt(self._fit, text, encoding, number, options) for number, text in enumerate(texts)
        ]

    def _fit(
        self, text: Text, encoding: BatchEncoding, number: int, options: Mapping[str, Any]
    ) -> list[Window]:
        length = len(encoding["input_ids"][number])
        if self.longest is not None and length > self.longest and self.truncates:
            cut = {"truncation": True, "max_length": self.longest}
            encoding = tokenize(self.tokenizer, [text], **{**options, **cut})
            number, length = 0, self.longest
        check_length(length, self.longest, "the text")
        return [window(encoding, number, self.tokenizer.model_input_names)]

    def read_parameters(self, given: Mapping[str, Any]) -> Any:
        """Return a request's parameters, checked, over the YAML's defaults."""
        return self.parameters.of_request(self.defaults, given)

    def _check_room(self) -> None:
        special = self.tokenizer.num_special_tokens_to_add()
        if self.longest is not None and self.longest <= special:
            raise WrongConfig(
                "handler.max_length",
                f"is {self.longest}, and {special} tokens of each row are special ones",
                "allow more, or leave it out",
            )

    def _pad_ids(self) -> dict[str, int]:
        pad = self.tokenizer.pad_token_id or 0
        return {"input_ids": pad, "token_type_ids": self.tokenizer.pad_token_type_id}
