"""The stubs of the Open Inference Protocol, which send any tensors."""

from __future__ import annotations

import json
import sys
from typing import Any

import grpc
from google.protobuf.json_format import ParseDict
from tritonclient.grpc import service_pb2 as messages
from tritonclient.grpc import service_pb2_grpc as stubs

SECONDS = 60


def main(job: dict[str, Any]) -> dict[str, Any]:
    requests = [ParseDict(each, messages.ModelInferRequest()) for each in job["requests"]]
    with grpc.insecure_channel(job["address"]) as channel:
        stub = stubs.GRPCInferenceServiceStub(channel)
        streamed = stub.ModelStreamInfer(iter(requests), timeout=SECONDS)
        return {
            "alone": [ask(stub, request) for request in requests],
            "streamed": [each.error_message for each in streamed],
        }


def ask(stub: Any, request: Any) -> list[str]:
    """Return the status of a request that is refused, and the error message."""
    try:
        stub.ModelInfer(request, timeout=SECONDS)
    except grpc.RpcError as error:
        return [error.code().name, error.details()]
    return []


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))  # noqa: T201
