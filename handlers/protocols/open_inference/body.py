"""The body of an inference request, in JSON or with tensors as bytes behind the JSON.

https://github.com/kserve/open-inference-protocol/blob/main/specification/protocol/inference_rest.md
https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_binary_data.md
"""

from __future__ import annotations

import re
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt

from handlers.errors import BadRequest, Unprocessable
from handlers.http.decoding import json_of, text_of
from handlers.http.request import HttpRequest
from handlers.protocols.open_inference.datatypes import Datatype
from handlers.schemas.validation import parse_body

LENGTH_OF_JSON = "Inference-Header-Content-Length"
OUTPUT = "output"


class Part(BaseModel):
    """Base of the body and its parts: unknown keys are refused."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, protected_namespaces=(), allow_inf_nan=False
    )


class Input(Part):
    """One tensor as it is written; `binary` holds its bytes where they come behind the JSON."""

    name: str
    datatype: Datatype
    shape: list[NonNegativeInt]
    parameters: dict[str, Any] | None = None
    data: Any = None

    @property
    def binary_size(self) -> Any:
        """How many bytes behind the JSON are its own; None where it is written in JSON."""
        return (self.parameters or {}).get("binary_data_size")


class Output(Part):
    """A tensor that is asked for."""

    name: str
    parameters: dict[str, Any] | None = None


class Body(Part):
    """What an inference request says; the model is chosen by the path, not by its name here."""

    id: str | None = None
    model_name: str | None = None
    model_version: str | None = None
    parameters: dict[str, Any] | None = None
    inputs: list[Input] = Field(min_length=1)
    outputs: list[Output] | None = None

    @classmethod
    def of(cls, content: Any) -> Self:
        """Check a body.

        Raises:
            BadRequest: with the first mistake.
            Unprocessable: it asks for classes of a tensor, which is an extension of Triton's.
        """
        body = parse_body(cls, content)
        for asked in body.outputs or ():
            if asked.name != OUTPUT:
                raise BadRequest(f"There is no output {asked.name}; there is {OUTPUT}.")
            if (asked.parameters or {}).get("classification"):
                raise Unprocessable("output has no classification here; set the parameter top_k.")
        return body

    @property
    def wants_bytes(self) -> bool:
        """Whether the answer's tensor is to come as bytes behind the JSON."""
        usual = (self.parameters or {}).get("binary_data_output", False)
        wishes = [(each.parameters or {}).get("binary_data", usual) for each in self.outputs or ()]
        return bool(wishes[0] if wishes else usual)


def parts_of(http_request: HttpRequest) -> tuple[Any, bytes]:
    """Return a body's JSON, and the bytes behind it.

    Raises:
        BadRequest: it is no JSON, or shorter than its header says.
    """
    length, raw = http_request.header(LENGTH_OF_JSON), http_request.raw
    if not length or not isinstance(raw, (bytes, bytearray)):
        return http_request.content, b""
    if not re.fullmatch("[0-9]{1,12}", length) or int(length) > len(raw):
        raise BadRequest(f"{LENGTH_OF_JSON} is {length[:20]}, and the body has {len(raw)} bytes.")
    end = int(length)
    return json_of(text_of(raw[:end])), bytes(raw[end:])
