"""Answers of the protocol: one tensor with the JSON text of each row's result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from handlers.http.response import HttpResponse, encode_json
from handlers.protocols.open_inference.body import LENGTH_OF_JSON, OUTPUT
from handlers.protocols.open_inference.datatypes import BYTES, join
from handlers.schemas.model_info import ModelInfo

OCTETS = "application/octet-stream"


def response_body(
    request_id: str | None, model: ModelInfo, elements: Sequence[Any], name: str = OUTPUT
) -> dict[str, Any]:
    """Return an answer whose one tensor has these elements."""
    output = {
        "name": name,
        "datatype": BYTES,
        "shape": [len(elements), 1],
        "parameters": {"content_type": "hg_jsonlist"},
        "data": list(elements),
    }
    own = {} if request_id is None else {"id": request_id}
    return {"model_name": model.name, "model_version": model.version, **own, "outputs": [output]}


def binary_response(reply: Mapping[str, Any]) -> HttpResponse:
    """Return an answer whose tensor lies as bytes behind the JSON."""
    output = dict(reply["outputs"][0])
    data = join(text.encode("utf-8", "backslashreplace") for text in output.pop("data"))
    output["parameters"] = {**output["parameters"], "binary_data_size": len(data)}
    head = encode_json({**reply, "outputs": [output]})
    return HttpResponse(head + data, content_type=OCTETS, headers={LENGTH_OF_JSON: str(len(head))})
