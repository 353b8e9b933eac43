"""The description of a served model, for clients and for wire formats."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal, Protocol

from handlers.config.handler_section import HandlerSection

Schema = Mapping[str, Any]
Columns = tuple[str, ...]
# What a mode does, under the names that embedding servers and OpenAI have for it.
Service = Literal[
    "embed",
    "embed_all",
    "embed_sparse",
    "rerank",
    "similarity",
    "predict",
    "transcribe",
    "speak",
]
# What a model does: the operation of its mode, and whether it has a tokenizer, generates texts,
# continues prompts and chats, or generates images.
Ability = Service | Literal["tokenizes", "generates", "continues_prompts", "draws"]
# The column of inputs that are one text.
TEXT_COLUMN: Columns = ("text",)
# The column of inputs that are one image.
IMAGE_COLUMN: Columns = ("image",)
# The column of inputs that are one audio file.
AUDIO_COLUMN: Columns = ("audio",)
# The content types of columns whose values are files.
FILE_TYPES: Mapping[Columns, str] = {IMAGE_COLUMN: "image/*", AUDIO_COLUMN: "audio/*"}
# What the columns of inputs are that are one value, which stands by itself and not in an object.
SINGLE_VALUES: Mapping[Columns, str] = {
    TEXT_COLUMN: "a text",
    IMAGE_COLUMN: "an image",
    AUDIO_COLUMN: "an audio file",
}
PUBLIC = (
    "name",
    "version",
    "mode",
    "save_mode",
    "dtype",
    "agreement",
    "labels",
    "limits",
    "inputs",
    "results",
    "parameters",
    "explanation",
    "sample",
    "architecture",
    "adapters",
    "generation",
)
PUBLIC_SETTINGS = ("quantization", "responses")


@dataclass(frozen=True)
class Limits:
    """The limits of one request; None for no limit.

    Attributes:
        max_length: tokens of a text, or of a window of one.
        max_rows: items of a list, or windows of a text.
        max_characters: characters of a text, which an image in base64 is, too.
        truncation: whether a text with more tokens is truncated or refused.
        max_total_tokens: tokens of a prompt and its new text together; elsewhere `max_length`.
    """

    max_length: int | None
    max_rows: int
    max_characters: int
    truncation: bool
    max_total_tokens: int | None = None


@dataclass(frozen=True)
class GenerationInfo:
    """How the texts of a model are generated.

    Attributes:
        engine: what generates them.
        by_generate: the parameters with which the checkpoint's weights and transformers' `generate`
            generate a text instead.
        refused: the parameters that are refused.
    """

    engine: str = "transformers"
    by_generate: Sequence[str] = ()
    refused: Sequence[str] = ()


@dataclass(frozen=True)
class HubResult:
    """The result of one text as Hugging Face's hub returns it and its clients read it.

    Attributes:
        clients: found in the User-Agent of the clients that read it.
        convert: returns it, from the task's result.
    """

    clients: re.Pattern[str]
    convert: Callable[[Any], Any]


@dataclass(frozen=True)
class ResultFiles:
    """The items of a result as files, for requests whose Accept header prefers one of their types.

    Attributes:
        content_types: the types of the files, the usual one first.
        convert: returns the file of an item in one of the types.
        clients: found in the User-Agent of the clients that read a file without an Accept header.
        clients_type: the type of the file that they read.
    """

    content_types: Sequence[str]
    convert: Callable[[Any, str], bytes]
    clients: re.Pattern[str] | None = None
    clients_type: str = ""


@dataclass(frozen=True)
class LegacyResponse:
    """The response of TorchServe's old Hugging Face example in one mode.

    Attributes:
        parameters: the task's parameters that give all that the old response needs.
        convert: returns the old response, from the task's result.
    """

    parameters: Mapping[str, Any]
    convert: Callable[[Any], Any]


@dataclass(frozen=True)
class ModelInfo:
    """A served model: the public part is for clients, the other for wire formats.

    Attributes:
        name: the name under which TorchServe serves it.
        version: the archive's version.
        mode: its task.
        save_mode: its format.
        dtype: the type of its numbers on this machine.
        labels: names of its classes, by class number; empty where it has none.
        limits: the limits of one request.
        inputs: JSON schema of the inputs of one request.
        results: JSON schema of the result of one request.
        parameters: JSON schemas of the parameters by name, with this model's defaults.
        explanation: JSON schemas of the additional parameters of `/explanations`; empty where the
            model is not explained.
        sample: the body of a request that it answers.
        adapters: names of the LoRA adapters that a request can choose.
        settings: the YAML's `handler:` section.
        architecture: the checkpoint's model class.
        input_columns: the names that the columns of a table's row may have, or the tensors of its
            inputs; the first are the usual ones.
        result_columns: the keys of a result that are columns in a table; none for one of JSON.
        generates: whether results are generated texts, which can be streamed. The first of
            `result_columns` is the key of a text.
        is_encoder_decoder: whether they are texts of a decoder that an encoder reads the inputs
            for, and continue no prompt or chat.
        generates: whether results are generated texts, which can be streamed.
        operation: what it does under an embedding server's name; None where such servers lack it.
        prompts: names of the checkpoint's prompts, one of which a request can put before its text.
        takes_pairs: whether a list of two texts is one request, a pair, and not two of them.
        reads_media: whether inputs are files, such as images, which may be the body of a request.
        draws: whether results are generated images, whose steps can be streamed.
        result_files: the items of a result as files; None where they are no files.
        hub_result: the result of one text for Hugging Face's own clients, where the hub returns
            another one than the pipeline; else None.
        legacy_response: the response of TorchServe's old example; None where it had no such mode.
        legacy_explanation_keys: the keys of that example's explanations.
        agreement: how often it agrees with its checkpoint in float32, measured when it was packed;
            None where that was not measured.
        generation: how its texts are generated; None where it generates none.
        explanation_views: returns what the HTML page shows of an explanation, highlighted texts or
            pictures; None where the model is not explained.
    """

    name: str
    version: str
    mode: str
    save_mode: str
    dtype: str
    labels: Sequence[str]
    limits: Limits
    inputs: Schema
    results: Schema
    parameters: Schema
    explanation: Schema
    sample: Mapping[str, Any]
    settings: HandlerSection = field(repr=False)
    architecture: str = ""
    adapters: Sequence[str] = ()
    input_columns: Sequence[Columns] = (TEXT_COLUMN,)
    result_columns: Sequence[str] = ()
    generates: bool = False
    is_encoder_decoder: bool = False
    operation: Service | None = None
    prompts: Sequence[str] = ()
    takes_pairs: bool = False
    reads_media: bool = False
    draws: bool = False
    result_files: ResultFiles | None = None
    hub_result: HubResult | None = None
    legacy_response: LegacyResponse | None = None
    legacy_explanation_keys: Sequence[str] = ()
    agreement: Mapping[str, Any] | None = None
    generation: GenerationInfo | None = None
    explanation_views: Callable[[Any], Any] | None = None

    @property
    def continues_prompts(self) -> bool:
        """Whether it continues prompts and chats."""
        return self.generates and not self.is_encoder_decoder

    @cached_property
    def abilities(self) -> set[Ability]:
        """What it does."""
        return abilities_of(self)

    def as_json(self) -> dict[str, Any]:
        """Return the public part, ready for JSON."""
        facts = {name: getattr(self, name) for name in PUBLIC}
        settings = {name: getattr(self.settings, name) for name in PUBLIC_SETTINGS}
        generation = asdict(self.generation) if self.generation else None
        return {**facts, **settings, "limits": asdict(self.limits), "generation": generation}


class HasAbilities(Protocol):
    """A model, or the task of a mode, that says what it does."""

    @property
    def operation(self) -> Service | None: ...
    @property
    def generates(self) -> bool: ...
    @property
    def is_encoder_decoder(self) -> bool: ...
    @property
    def draws(self) -> bool: ...


def abilities_of(model: HasAbilities) -> set[Ability]:
    """Return what a model, or those of a task, does."""
    abilities: dict[Ability, bool] = {
        "generates": model.generates,
        "continues_prompts": model.generates and not model.is_encoder_decoder,
        "draws": model.draws,
    }
    return {name for name, has in abilities.items() if has} | (
        {model.operation} if model.operation else set()
    )
