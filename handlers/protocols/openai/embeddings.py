"""The endpoint `embeddings`: texts, or their token ids, to a vector each.

    {"input": ["a text", "another"], "dimensions": 64}
    -> {"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": […]}, …], …}

An embedding is a list of numbers, or its float32 numbers in base64. infinity's `embeddings` has the
same bodies, with the `modality` of the inputs.

https://platform.openai.com/docs/api-reference/embeddings
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, PositiveInt

from handlers.http.request import HttpRequest
from handlers.http.response import HttpResponse, encode_json
from handlers.protocols.base import (
    Exchange,
    check_not_explained,
    check_operation,
    texts_or_ids,
    tokens_read,
)
from handlers.protocols.openai.adapters import adapter_parameters, served_name
from handlers.protocols.openai.keys import TABLES
from handlers.schemas.model_info import ModelInfo
from handlers.schemas.parameters import WholeNumbers, parse_body
from handlers.schemas.request import Request, TokenCount

# Clients read other numbers as these, whatever the YAML of the model sets.
FLOATS: Mapping[str, Any] = {"precision": "float32", "encoding_format": "float"}


class EmbeddingBody(WholeNumbers):
    """The body of `embeddings`; others are left to the table of keys."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True, protected_namespaces=())

    model: str | None = None
    input: Any
    dimensions: PositiveInt | None = None
    encoding_format: Literal["float", "base64"] | None = None
    modality: Literal["text"] | None = None
    # Extensions of vLLM and Jina.
    normalize: bool | None = None
    normalized: bool | None = None
    use_activation: bool | None = None
    truncate: bool | None = None
    truncate_prompt_tokens: Annotated[int, Field(ge=-1)] | None = None

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of the embedding task."""
        given = self.model_dump(include={"dimensions", "encoding_format"}, exclude_none=True)
        names = (self.normalize, self.normalized, self.use_activation)
        normalize = next((each for each in names if each is not None), None)
        if normalize is not None:
            given["normalize"] = normalize
        if self.truncate is not None:
            given["truncate"] = self.truncate
        if self.truncate_prompt_tokens:
            given["truncate"] = True
            if self.truncate_prompt_tokens > 0:
                given["max_length"] = self.truncate_prompt_tokens
        return {**FLOATS, **given}


@dataclass(frozen=True)
class EmbeddingContext:
    """What the endpoint needs to write a response.

    Attributes:
        endpoint: the endpoint.
        model_name: the name of the model in the response.
    """

    endpoint: Embeddings
    model_name: str


class Embeddings:
    """`embeddings`: a vector for each input."""

    path: ClassVar[str] = "embeddings"
    inputs_key: ClassVar[str] = "input"

    def __init__(self, model: ModelInfo) -> None:
        self.model = model

    def parse(self, http_request: HttpRequest) -> Exchange:
        """Parse a request.

        Raises:
            RequestError: it cannot be understood, or this model cannot do it.
        """
        check_operation(self.model, "embed")
        check_not_explained(http_request, self.path)
        http_request = TABLES[self.path].check(http_request)
        body = parse_body(EmbeddingBody, http_request.content)
        parameters = {**body.parameters, **adapter_parameters(self.model, body.model)}
        requests = [
            Request(each, parameters, alone=False, token_count=TokenCount())
            for each in texts_or_ids(body.input, "input", self.model.limits.max_rows)
        ]
        return Exchange(
            http_request, requests, EmbeddingContext(self, served_name(self.model, body.model))
        )

    def write(self, exchange: Exchange, results: Sequence[Any]) -> HttpResponse:
        """Return the response, from the result of each request."""
        data = [
            {"object": "embedding", "index": index, "embedding": embedding}
            for index, embedding in enumerate(results)
        ]
        tokens = tokens_read(exchange.requests)
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        head = {"object": "list", "data": data, "model": exchange.context.model_name}
        return HttpResponse(encode_json({**head, "usage": usage}))
