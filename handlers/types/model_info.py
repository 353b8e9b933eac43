"""The description of a served model, for clients and for wire formats."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal

from ..config.handler_section import HandlerSection

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
# What a model does: the service of its mode, and whether it has a tokenizer, generates texts,
# continues prompts and chats, generates images, gives pairs of texts a score, returns vectors of
# texts or of their tokens, answers questions with known answers, moderates texts, or redacts them.
Ability = (
    Service
    | Literal[
        "tokenizes",
        "generates",
        "continues_prompts",
        "generates_images",
        "scores",
        "pools",
        "decides",
        "moderates",
        "redacts",
    ]
)
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
    "input_columns",
    "results",
    "parameters",
    "explanation",
    "sample",
    "architecture",
    "adapters",
    "generation",
)
# The public part of a model that answers by its own code.
IDENTITY = ("name", "version", "mode")
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
        by_generate: the parameters with which the checkpoint's weights and transformers' `generate`
            generate a text instead.
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
    """

    parameters: Mapping[str, Any]
    convert: Callable[[Any], Any]


@dataclass(frozen=True)
class Wire:
    """What requests and results of a task look like.

    Attributes:
        inputs: the type of the inputs of one request, for its schema.
        results: the type of the result of one request, for its schema.
        example: the body of a request that every model of the mode answers.
        input_columns: the columns that the inputs may have in a table, or the names of their
            tensors; the first are the usual ones.
        result_columns: the keys of a result that are columns in a table; none for one of JSON. The
            first is the key of a generated text.
        takes_pairs: whether a list of two texts is one request, a pair, and not two requests.
        result_files: the items of a result as files; None where they are no files.
        hub_result: the result of one text for Hugging Face's own clients, where the hub returns
            another one than the pipeline.
        legacy_response: the response of TorchServe's old example; None where it had no such mode.
        redaction: parameters with which a result is a list of all entities of a text, with their
            characters; None where results are no entities.
    """

    inputs: Any
    results: Any
    example: Mapping[str, Any]
    input_columns: Sequence[Columns] = (TEXT_COLUMN,)
    result_columns: Sequence[str] = ()
    takes_pairs: bool = False
    result_files: ResultFiles | None = None
    hub_result: HubResult | None = None
    legacy_response: LegacyResponse | None = None
    redaction: Mapping[str, Any] | None = None

    @cached_property
    def reads_media(self) -> bool:
        """Whether inputs are files, such as images, which may be the body of a request."""
        names = {name for columns in self.input_columns for name in columns}
        return any(not names.isdisjoint(columns) for columns in FILE_TYPES)


@dataclass(frozen=True)
class ModelOutputs:
    """The outputs of a model that its task reads.

    Attributes:
        names: their names; none where a model that generates has none to compare with its
            checkpoint.
        optional: the outputs that some models do not have.
        per_token: the outputs that have a value for each token.
        numbers: the outputs whose numbers have to agree in exports, because they are no logits.
        are_vectors: whether they are vectors, whose cosines have to agree in exports.
    """

    names: tuple[str, ...]
    optional: tuple[str, ...] = ()
    per_token: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    are_vectors: bool = False

    @property
    def required(self) -> tuple[str, ...]:
        """The names of the outputs that every model has."""
        return tuple(name for name in self.names if name not in self.optional)


@dataclass(frozen=True)
class Rows:
    """What the rows of a task are, and how they share a forward.

    Attributes:
        kind: rows of tokens are padded or packed; arrays of equal shapes are stacked.
        supports_packing: whether several rows may be packed into one where the model can run that.
        cost_unit: what is computed for a row, in the plural.
        smaller_requests: what to send instead of a request that takes too long.
        smaller_results: what to send instead of a request with too many numbers in its results.
    """

    kind: Literal["tokens", "arrays"] = "tokens"
    supports_packing: bool = True
    cost_unit: str = "tokens"
    smaller_requests: str = "fewer or shorter texts"
    smaller_results: str = "fewer or shorter texts"


@dataclass(frozen=True)
class Exports:
    """What exports of the models of a task are.

    Attributes:
        supported: whether graphs of the models can be exported.
        one_forward: whether a row runs in one forward, so that its outputs can be compared with the
            outputs of the checkpoint in float32.
        fastest_formats: the fastest format by type of device, for `save_mode: auto`; the checkpoint
            itself on all others.
    """

    supported: bool = True
    one_forward: bool = True
    fastest_formats: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Generation:
    """What the models of a task generate.

    Attributes:
        texts: whether results are generated texts, which can be streamed. A format must generate.
        is_encoder_decoder: whether an encoder reads the inputs and a decoder writes these texts.
        images: whether results are generated images, whose steps can be streamed.
    """

    texts: bool = False
    is_encoder_decoder: bool = False
    images: bool = False

    @property
    def continues_prompts(self) -> bool:
        """Whether the texts continue prompts and chats."""
        return self.texts and not self.is_encoder_decoder


@dataclass(frozen=True)
class TaskDescription:
    """What a task can do, declared once: models, exports, protocols and documents read it.

    Attributes:
        service: what the mode does under the name that embedding servers or OpenAI have for it, by
            which their protocols find it; None where they have no such thing.
        has_labels: whether its models have classes, which the checkpoint names.
        decides: whether a request may be a :class:`hf_serve.handlers.types.decisions.Question`,
            whose result is the probability of each option.
        moderates: whether its models may have categories of moderation.
        takes_adapters: whether a request may choose a LoRA adapter of the model.
    """

    wire: Wire
    outputs: ModelOutputs
    rows: Rows = Rows()
    exports: Exports = Exports()
    generation: Generation = Generation()
    service: Service | None = None
    has_labels: bool = False
    decides: bool = False
    moderates: bool = False
    takes_adapters: bool = False

    @cached_property
    def abilities(self) -> set[Ability]:
        """What the models do."""
        has: dict[Ability | None, bool] = {
            "generates": self.generation.texts,
            "continues_prompts": self.generation.continues_prompts,
            "generates_images": self.generation.images,
            "decides": self.decides,
            "moderates": self.moderates,
            "redacts": self.wire.redaction is not None,
            "scores": self.service in ("embed", "rerank", "similarity"),
            # Rerankers with vectors of tokens return these for a text alone.
            "pools": self.service in ("embed", "embed_all")
            or (self.service == "rerank" and bool(self.outputs.per_token)),
            self.service: True,
        }
        return {name for name in has if name and has[name]}


@dataclass(frozen=True)
class InferenceCodeInfo:
    """The own code by which a model answers.

    Attributes:
        defines: what its file defines: `EndpointHandler`, or the functions of `inference.py`.
    """

    file: str
    defines: str


@dataclass(frozen=True)
class ModelInfo:
    """A served model: the public part is for clients, the other for wire formats.

    Attributes:
        dtype: the type of its numbers on this machine.
        labels: names of its classes, by class number; empty where it has none.
        parameters: JSON schemas of the parameters by name, with this model's defaults.
        explanation: JSON schemas of the additional parameters of `/explanations`; empty where the
            model is not explained.
        prompts: names of prompts, one of which a request can put before its text.
        categories: the category of moderation that a label stands for; empty where the model does
            not moderate.
        legacy_explanation_keys: the keys of that example's explanations.
        agreement: how often it agrees with its checkpoint in float32, measured when it was packed;
            None where that was not measured.
        generation: how its texts are generated; None where it generates none.
        explanation_views: returns what the HTML page shows of an explanation, highlighted texts or
            pictures; None where the model is not explained.
        inference_code: the own code by which it answers; None for a model of this kit.
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
    task: TaskDescription
    settings: HandlerSection = field(repr=False)
    architecture: str = ""
    adapters: Collection[str] = ()
    prompts: Sequence[str] = ()
    categories: Mapping[str, str] = field(default_factory=dict)
    legacy_explanation_keys: Sequence[str] = ()
    agreement: Mapping[str, Any] | None = None
    generation: GenerationInfo | None = None
    explanation_views: Callable[[Any], Any] | None = None
    inference_code: InferenceCodeInfo | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the public part, ready for JSON."""
        if self.inference_code:
            code = asdict(self.inference_code)
            return {**{name: getattr(self, name) for name in IDENTITY}, "inference_code": code}
        wire = self.task.wire
        own = vars(self) | {"sample": wire.example, "input_columns": wire.input_columns}
        facts = {name: own[name] for name in PUBLIC}
        settings = {name: getattr(self.settings, name) for name in PUBLIC_SETTINGS}
        generation = asdict(self.generation) if self.generation else None
        return {
            **facts,
            **settings,
            "adapters": list(self.adapters),
            "limits": asdict(self.limits),
            "generation": generation,
        }
