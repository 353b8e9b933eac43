"""KServe's own clients with its V2, over REST and over gRPC."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from typing import Any

import grpc
import httpx
import numpy as np
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig

KINDS = {"BYTES": np.object_, "INT64": np.int64, "FP32": np.float32}


async def main(job: dict[str, Any]) -> dict[str, Any]:
    async with InferenceRESTClient(RESTConfig(protocol="v2")) as client:
        over_rest = [await rest(client, **call) for call in job["rest"]]
        ready = [await client.is_server_live(job["base_url"])]
        ready += [await client.is_server_ready(job["base_url"])]
        ready += [await client.is_model_ready(job["base_url"], job["model"])]
    async with InferenceGRPCClient(job["address"]) as client:
        over_grpc = [await ask_grpc(client, **call) for call in job["grpc"]]
        ready += [await client.is_server_live(), await client.is_server_ready()]
        ready += [await client.is_model_ready(job["model"])]
    return {"rest": over_rest, "grpc": over_grpc, "ready": ready}


async def rest(client: Any, base_url: str, **call: Any) -> Any:
    """Return the rows of an answer, or the error that the client raises."""
    try:
        answer = await client.infer(base_url, request(**call), model_name=call["model"])
    except httpx.HTTPStatusError as error:
        return {"status": error.response.status_code, "message": str(error)}
    return rows(answer)


async def ask_grpc(client: Any, **call: Any) -> Any:
    try:
        return rows(await client.infer(request(**call)))
    except grpc.RpcError as error:
        return {"status": error.code().name, "message": error.details()}


def request(model: str, inputs: Any, binary: bool = False, parameters: Any = None) -> InferRequest:
    given = []
    for each in inputs:
        tensor = InferInput(each["name"], each["shape"], each["datatype"])
        if binary:
            values = np.array(each["data"], dtype=KINDS[each["datatype"]]).reshape(each["shape"])
            tensor.set_data_from_numpy(values)
        else:
            tensor.data = each["data"]
        given.append(tensor)
    return InferRequest(model, given, parameters=parameters)


def rows(answer: Any) -> list[Any]:
    return [json.loads(each) for each in answer.outputs[0].as_numpy().ravel()]


if __name__ == "__main__":
    logging.disable()
    print(json.dumps(asyncio.run(main(json.load(sys.stdin)))))  # noqa: T201
