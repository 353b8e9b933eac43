"""Answers of the protocol: one tensor with the JSON text of each row's result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from handlers.answer import Answer, encode
from handlers.description import Description
from handlers.open_inference.body import LENGTH_OF_JSON, OUTPUT
from handlers.open_inference.datatypes import BYTES, join

OCTETS = "application/octet-stream"


def answer_to(
    request_id: str | None, model: Description, elements: Sequence[Any], name: str = OUTPUT
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


def as_bytes(reply: Mapping[str, Any]) -> Answer:
    """Return an answer whose tensor lies as bytes behind the JSON."""
    output = dict(reply["outputs"][0])
    data = join(text.encode("utf-8", "backslashreplace") for text in output.pop("data"))
    output["parameters"] = {**output["parameters"], "binary_data_size": len(data)}
    head = encode({**reply, "outputs": [output]})
    return Answer(head + data, content_type=OCTETS, headers={LENGTH_OF_JSON: str(len(head))})
