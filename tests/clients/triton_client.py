"""Triton's own clients, over HTTP and over gRPC: metadata, answers and errors."""

from __future__ import annotations

import json
import sys
from importlib import import_module
from typing import Any

import numpy as np
from tritonclient.utils import InferenceServerException, triton_to_np_dtype


def main(job: dict[str, Any]) -> dict[str, Any]:
    library = import_module(f"tritonclient.{job['transport']}")
    return {
        "answers": [attempt(ask, library, **call) for call in job["calls"]],
        "metadata": [attempt(get_metadata, library, **each) for each in job["metadata"]],
        "streamed": stream(library, job["calls"]) if is_grpc(library) else [],
    }


def ask(library: Any, url: str, binary: bool = True, **call: Any) -> Any:
    """Return the rows of an answer."""
    given = inputs(library, call, binary)
    form = {} if is_grpc(library) else {"binary_data": binary}
    outputs = [library.InferRequestedOutput("output", **form)] if call.get("named") else None
    with library.InferenceServerClient(url) as client:
        result = client.infer(
            call["model"],
            given,
            model_version=call.get("version", ""),
            outputs=outputs,
            request_id=call["id"],
            parameters=call.get("parameters"),
            **call.get("options", {}),
        )
    assert get(result, "id") == call["id"]
    return rows(result)


def inputs(library: Any, call: dict[str, Any], binary: bool) -> list[Any]:
    given, form = [], {} if is_grpc(library) else {"binary_data": binary}
    for each in call["inputs"]:
        tensor = library.InferInput(each["name"], each["shape"], each["datatype"])
        kind = np.object_ if each["datatype"] == "BYTES" else triton_to_np_dtype(each["datatype"])
        values = np.array(each["data"], dtype=kind).reshape(each["shape"])
        tensor.set_data_from_numpy(values, **form)
        given.append(tensor)
    return given


def rows(result: Any) -> list[Any]:
    return [json.loads(each) for each in result.as_numpy("output").ravel()]


def get(result: Any, name: str) -> Any:
    response = result.get_response()
    return response[name] if isinstance(response, dict) else getattr(response, name)


def is_grpc(library: Any) -> bool:
    return bool(library.__name__.endswith("grpc"))


def get_metadata(library: Any, url: str, model: str, version: str = "") -> dict[str, Any]:
    """Return what the client reads of the server and of a model, without a prediction."""
    as_json = {"as_json": True} if is_grpc(library) else {}
    with library.InferenceServerClient(url) as client:
        return {
            "live": client.is_server_live(),
            "ready": client.is_server_ready(),
            "model_ready": client.is_model_ready(model, version),
            "server": client.get_server_metadata(**as_json),
            "model": client.get_model_metadata(model, version, **as_json),
        }


def stream(library: Any, calls: list[dict[str, Any]]) -> list[Any]:
    """Return the answers to calls that are sent over one stream."""
    received: list[Any] = []
    with library.InferenceServerClient(calls[0]["url"]) as client:
        client.start_stream(lambda result, error: received.append(error or result))
        for call in calls:
            given = inputs(library, call, binary=True)
            parameters = call.get("parameters")
            client.async_stream_infer(
                call["model"], given, parameters=parameters, enable_empty_final_response=True
            )
        client.stop_stream()
    return [streamed_rows(each) for each in received]


def streamed_rows(result: Any) -> Any:
    """Return the rows of a streamed answer, which must be its request's last, or the error."""
    if isinstance(result, InferenceServerException):
        return result.message()
    return rows(result) if get(result, "parameters")["triton_final_response"].bool_param else None


def attempt(function: Any, *arguments: Any, **named: Any) -> Any:
    """Return the result of a call, or the error that the client raises."""
    try:
        return function(*arguments, **named)
    except InferenceServerException as error:
        return {"status": error.status(), "message": error.message()}


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))  # noqa: T201
