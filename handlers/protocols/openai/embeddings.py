"""The endpoint `embeddings`: texts, or their token ids, to a vector each.

    {"input": ["a text", "another"], "dimensions": 64}
    -> {"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": […]}, …], …}

An embedding is a list of numbers, or its float32 numbers in base64. infinity's `embeddings` has the
same bodies, with the `modality` of the inputs. A model of texts and images takes Jina's inputs, and
the message of a chat in the place of `input` as vLLM does:

    {"input": ["a text", {"image": "<base64>"}]}
    {"input": ["data:image/png;base64,…"], "modality": "image"}
    {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": …}}]}]}

https://platform.openai.com/docs/api-reference/embeddings
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field, PositiveInt, SkipValidation
from typing_extensions import TypedDict

from ...errors import BadRequest, RequestError, Unprocessable
from ...http.request import HttpRequest
from ...http.response import HttpResponse, encode_json
from ...types.embeddings import PROMPT_KEYS
from ...types.model_info import ModelInfo
from ...types.parameters import DifferentValues, one_value
from ...types.request import Request, TokenCount
from ..base import (
    KeyTable,
    ParsedRequest,
    Route,
    ignored,
    refused,
    texts_or_ids,
    tokens_read,
    with_names,
)
from ..items import ContentPart, ImageItem, TextItem, content_input, image_input, item_input
from ..truncation import PromptTokens, Truncation, truncation_of, truncation_parameters
from .bodies import SCHEDULING
from .endpoint import Body, Call, Endpoint, adapter_parameters, served_name
from .types import EmbeddingList, OpenAIError

# Clients read other numbers as these, whatever the YAML of the model sets.
FLOATS: Mapping[str, Any] = {"precision": "float32", "encoding_format": "float"}
# The keys of a body that are parameters of the task.
PARAMETERS = {"encoding_format", *PROMPT_KEYS}
# The type of numbers that a body names in place of the form of a vector, for Jina.
ONE_TYPE = Field(min_length=1, max_length=1)
NumberType = Literal["float", "int8", "uint8", "binary", "ubinary"]
EmbeddingType = NumberType | Literal["base64"]


# One text or several, or the token ids of one or of several; see `texts_or_ids`.
Ids = Annotated[list[int], Field(min_length=1)]
TextsOrIds = (
    str
    | Annotated[list[str], Field(min_length=1)]
    | Ids
    | Annotated[list[Ids], Field(min_length=1)]
)
Items = TextItem | ImageItem | Annotated[list[str | TextItem | ImageItem], Field(min_length=1)]


class EmbeddedMessage(TypedDict):
    """The message of a chat whose content becomes a vector."""

    role: NotRequired[str]
    content: str | list[ContentPart]


class EmbeddingBody(Body):
    """The body of `embeddings`."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["input"]}, {"required": ["messages"]}]}
    )

    input: SkipValidation[TextsOrIds | Items] | None = None
    dimensions: PositiveInt | None = None
    encoding_format: Literal["float", "base64"] | None = None
    modality: Literal["text", "image"] | None = None
    # Extensions of vLLM and Jina.
    messages: SkipValidation[list[EmbeddedMessage]] | None = None
    normalize: bool | None = None
    normalized: bool | None = None
    use_activation: bool | None = None
    truncate_prompt_tokens: PromptTokens | None = None
    # Extensions of NVIDIA's NIM, Jina, Cohere, Voyage AI, Mistral and sentence-transformers.
    truncate: bool | Truncation | None = None
    truncation: bool | None = None
    output_dimension: PositiveInt | None = None
    output_dtype: NumberType | None = None
    embedding_type: EmbeddingType | Annotated[list[EmbeddingType], ONE_TYPE] | None = None
    task: str | None = None
    input_type: str | None = None
    prompt_name: str | None = None
    prompt: str | None = None
    late_chunking: bool | None = None

    def parameters(self, model: ModelInfo) -> dict[str, Any]:
        """Return the parameters of the embedding task.

        Raises:
            BadRequest: two names of one setting have different values.
        """
        found = {
            "normalize": self._one("normalize", "normalized", "use_activation"),
            "dimensions": self._one("dimensions", "output_dimension"),
        }
        truncation = self._truncation()
        return {
            **FLOATS,
            **self.model_dump(include=PARAMETERS, exclude_none=True),
            **{name: each for name, each in found.items() if each is not None},
            **self._numbers(),
            **truncation,
            **truncation_parameters(self.truncate_prompt_tokens, model, truncation),
        }

    def _numbers(self) -> dict[str, Any]:
        """Return the parameters for the type of the numbers of a vector."""
        kind = self.embedding_type
        (own,) = kind if isinstance(kind, list) else [kind]
        encoding: dict[str, Any] = {}
        if own == "base64":  # It says nothing about the numbers.
            encoding = {
                "encoding_format": one_value(
                    {"embedding_type": own, "encoding_format": self.encoding_format}
                )
            }
            own = None
        number = one_value({"embedding_type": own, "output_dtype": self.output_dtype})
        return encoding if number in (None, "float") else {**encoding, "precision": number}

    def _truncation(self) -> Mapping[str, Any]:
        """Return the parameters for texts that are too long; END and true say the same."""
        own, other = truncation_of(self.truncate), truncation_of(self.truncation)
        if own and other and own["truncate"] != other["truncate"]:
            raise DifferentValues("truncate", "truncation")
        return {**other, **own}

    def _one(self, *names: str) -> Any:
        """Return the value of a setting that has several names; None if none is given."""
        return one_value({each: getattr(self, each) for each in names})


KEYS = KeyTable.of(
    EmbeddingBody,
    ignored("user", "padding"),
    SCHEDULING,
    refused(
        add_special_tokens=True,
        add_generation_prompt=False,
        continue_final_message=False,
        chat_template=[],
        chat_template_kwargs=[],
        mm_processor_kwargs=[],
        media_io_kwargs=[],
        truncation_side="right",
        embed_dtype="float32",
        endianness=["native", "little"],
        instruction=[],
        return_multivector=False,
    ),
)


class Embeddings(Endpoint[EmbeddingBody]):
    """`embeddings`: a vector for each input."""

    route = Route(
        "v1/embeddings",
        name="embeddings",
        server="OpenAI",
        summary="Return a vector for each text.",
        response=EmbeddingList,
        error=OpenAIError,
        abilities=("embed",),
        body=EmbeddingBody,
        keys=KEYS,
        examples=lambda sample: {
            "one": {"input": sample["inputs"]},
            "list": {
                "input": [sample["inputs"]] * 2,
                "encoding_format": "base64",
                "dimensions": 4,
            },
            "ids": {"input": [[5, 6, 7]] * 2},
        },
    )
    inputs_key = "input"

    def parsed_request(self, http_request: HttpRequest, body: EmbeddingBody) -> ParsedRequest:
        parameters = {**body.parameters(self.model), **adapter_parameters(self.model, body.model)}
        requests = [
            Request(each, parameters, is_batch_item=True, token_count=TokenCount())
            for each in self._inputs(body)
        ]
        return ParsedRequest(http_request, requests, Call(self, body))

    def _inputs(self, body: EmbeddingBody) -> list[Any]:
        """Return the inputs of the task, from `input` or the content of a message."""
        if body.messages:
            return [self._message(body)]
        if body.input is None:
            raise BadRequest("input is missing; add it.")
        items = texts_or_ids(body.input, "input", self.model.limits.max_rows)
        if body.late_chunking:
            return [self._chunks(items)]
        if body.modality == "image":
            return [_image(each, self.model) for each in items]
        return [item_input(each, "input", self.model) for each in items]

    def _chunks(self, items: Sequence[Any]) -> Any:
        """Return the input of texts that are read in one forward.

        Raises:
            Unprocessable: the model does not do that.
        """
        if self.model.mode != "sentence_embedding":
            raise Unprocessable(
                "late_chunking cannot be done by this server for this model; leave it out."
            )
        return {"chunks": list(items)}

    def failure(self, parsed: ParsedRequest, outcomes: Sequence[Any]) -> RequestError | None:
        error = super().failure(parsed, outcomes)
        return with_names(error, {"chunks": "input"}) if error else None

    def _message(self, body: EmbeddingBody) -> Any:
        """Return the content of the only message.

        Raises:
            BadRequest: it has no content, or there is also an input.
            Unprocessable: there are several messages, or the model reads no images.
        """
        messages: Any = body.messages
        if not self.model.task.wire.reads_media:
            raise Unprocessable("messages are not read by this model; send texts as input.")
        if body.input is not None:
            raise BadRequest("The body has input and messages; send one of them.")
        if not isinstance(messages, list) or len(messages) != 1:
            raise Unprocessable("messages must have one message, which becomes a vector.")
        message = messages[0]
        content = message.get("content") if isinstance(message, dict) else None
        return content_input(content, "messages", self.model)

    def write(self, parsed: ParsedRequest, results: Sequence[Any]) -> HttpResponse:
        tokens = tokens_read(parsed.requests)
        if parsed.context.body.late_chunking:
            (results,) = results
        embeddings: EmbeddingList = {
            "object": "list",
            "data": [
                {"object": "embedding", "index": index, "embedding": embedding}
                for index, embedding in enumerate(results)
            ],
            "model": served_name(self.model, parsed.context.body.model),
            "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        }
        return HttpResponse(encode_json(embeddings))


def _image(item: Any, model: ModelInfo) -> Any:
    """Return the input of an item of `modality: image`."""
    is_object = isinstance(item, dict)
    return item_input(item, "input", model) if is_object else image_input(item, "input", model)
