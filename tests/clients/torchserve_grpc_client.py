"""TorchServe's own gRPC, with stubs generated from the protocol files in its jar."""

from __future__ import annotations

import json
import sys
import tempfile
import zipfile
from importlib import import_module
from pathlib import Path
from typing import Any

import grpc
from grpc_tools import protoc

OWN, OPEN = "inference", "open_inference_grpc"
FILES = [f"{OWN}.proto", f"{OPEN}.proto", "google/rpc/status.proto"]
SECONDS = 60


def main(job: dict[str, Any]) -> dict[str, Any]:
    make_stubs(job["jar"])
    with grpc.insecure_channel(job["address"]) as channel:
        return {
            "tensors": [ask_tensors(channel, **call) for call in job["tensors"]],
            "own": [attempt(ask, channel, **call) for call in job["own"]],
        }


def make_stubs(jar: str) -> None:
    folder = Path(tempfile.mkdtemp())
    with zipfile.ZipFile(jar) as archive:
        archive.extractall(folder, FILES)
    options = [f"-I{folder}", f"--python_out={folder}", f"--grpc_python_out={folder}"]
    shared = Path(protoc.__file__).parent / "_proto"
    if protoc.main(["protoc", f"-I{shared}", *options, *FILES]):
        raise SystemExit("The stubs could not be made.")
    sys.path.insert(0, str(folder))


def ask_tensors(channel: Any, model: str, inputs: Any, **rest: Any) -> dict[str, Any]:
    """Return the name and the elements of the tensor that the Open Inference Protocol answers."""
    messages = import_module(f"{OPEN}_pb2")
    service = import_module(f"{OPEN}_pb2_grpc").GRPCInferenceServiceStub(channel)
    tensors = [tensor(messages, **each) for each in inputs]
    request = messages.ModelInferRequest(model_name=model, inputs=tensors, **rest)
    answer = service.ModelInfer(request, timeout=SECONDS)
    (output,) = answer.outputs
    rows = [json.loads(each) for each in output.contents.bytes_contents]
    names = {"id": answer.id, "model": answer.model_name, "version": answer.model_version}
    return {**names, "name": output.name, "shape": list(output.shape), "rows": rows}


def tensor(messages: Any, name: str, datatype: str, shape: list[int], data: list[Any]) -> Any:
    field = {"BYTES": "bytes_contents", "INT64": "int64_contents", "FP32": "fp32_contents"}
    values = [each.encode() if isinstance(each, str) else each for each in data]
    return messages.ModelInferRequest.InferInputTensor(
        name=name,
        datatype=datatype,
        shape=shape,
        contents=messages.InferTensorContents(**{field[datatype]: values}),
    )


def ask(channel: Any, method: str, model: str, **fields: str) -> list[Any]:
    """Return the parts of an answer of TorchServe's own service."""
    messages = import_module(f"{OWN}_pb2")
    service = import_module(f"{OWN}_pb2_grpc").InferenceAPIsServiceStub(channel)
    given = {name: text.encode() for name, text in fields.items()}
    request = messages.PredictionsRequest(model_name=model, input=given)
    answer = getattr(service, method)(request, timeout=SECONDS)
    parts = answer if method == "StreamPredictions" else [answer]
    return [json.loads(part.prediction) for part in parts]


def attempt(function: Any, *arguments: Any, **named: Any) -> Any:
    try:
        return function(*arguments, **named)
    except grpc.RpcError as error:
        return {"code": error.code().name, "details": error.details()}


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))  # noqa: T201
