"""A gRPC server of the Open Inference Protocol's own package, `inference`, in front of TorchServe.

TorchServe's gRPC has the same service under a package of its own, drops raw contents and parameters
and tells no errors; clients of Triton and KServe cannot use it. This asks it over HTTP instead.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import grpc
import httpx
from google.protobuf.json_format import ParseDict
from tritonclient.grpc import service_pb2 as messages
from tritonclient.grpc import service_pb2_grpc as stubs

from scripts.kit.grpc_tensors import to_http_body, to_infer_response
from scripts.kit.grpc_upstream import Upstream, UpstreamError

LENGTH_OF_JSON = "Inference-Header-Content-Length"
OCTETS = "application/octet-stream"
LARGEST = 64 * 2**20  # bytes of a message; what is too large for TorchServe, it says itself
SECONDS_TO_FINISH = 5

Message = TypeVar("Message")


class Gateway(stubs.GRPCInferenceServiceServicer):
    """The protocol's service; what is not here, such as Triton's statistics, is not implemented."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def ServerLive(self, request: Any, context: Any) -> Any:
        return messages.ServerLiveResponse(live=await self._upstream(context).is_healthy())

    async def ServerReady(self, request: Any, context: Any) -> Any:
        return messages.ServerReadyResponse(ready=await self._upstream(context).is_healthy())

    async def ModelReady(self, request: Any, context: Any) -> Any:
        ready = await self._upstream(context).is_ready(request.name, request.version)
        return messages.ModelReadyResponse(ready=ready)

    async def ServerMetadata(self, request: Any, context: Any) -> Any:
        told = await _or_abort(context, self._upstream(context).request("OPTIONS", "/"))
        version = told.json()["info"]["version"]
        return messages.ServerMetadataResponse(name="torchserve", version=version)

    async def ModelMetadata(self, request: Any, context: Any) -> Any:
        asked = self._upstream(context).request_model(request.name, request.version)
        told = await _or_abort(context, asked)
        return ParseDict(told.json(), messages.ModelMetadataResponse())

    async def ModelInfer(self, request: Any, context: Any) -> Any:
        return await _or_abort(context, self._infer(request, context))

    async def ModelStreamInfer(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        """Answer the requests of a stream one after the other; an error does not end it."""
        async for request in requests:
            try:
                answer = await self._infer(request, context)
            except UpstreamError as error:
                empty = messages.ModelInferResponse(model_name=request.model_name, id=request.id)
                yield messages.ModelStreamInferResponse(
                    error_message=str(error), infer_response=empty
                )
            else:
                # Triton tells so which answer of a request is its last; here each has one.
                answer.parameters["triton_final_response"].bool_param = True
                yield messages.ModelStreamInferResponse(infer_response=answer)

    async def _infer(self, request: Any, context: Any) -> Any:
        body, length = to_http_body(request)
        headers = {LENGTH_OF_JSON: str(length), "Content-Type": OCTETS}
        answer = await self._upstream(context).request_model(
            request.model_name, request.model_version, "/infer", body, headers
        )
        size = int(answer.headers[LENGTH_OF_JSON])
        return to_infer_response(answer.content, size, raw=bool(request.raw_input_contents))

    def _upstream(self, context: Any) -> Upstream:
        return Upstream(self._client, context)


async def serve(target: str, address: str, on_ready: Callable[[int], None]) -> None:
    """Serve until the process is asked to end, by SIGINT or SIGTERM.

    Args:
        target: TorchServe's inference address.
        address: where to listen; port 0 is any free one.
        on_ready: called with the port once clients are answered.

    Raises:
        OSError: nothing can listen at the address.
    """
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
    async with httpx.AsyncClient(base_url=target, limits=limits, trust_env=False) as client:
        server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", LARGEST),
                ("grpc.max_send_message_length", -1),
                ("grpc.so_reuseport", 0),  # else a port that is taken would be shared
            ]
        )
        stubs.add_GRPCInferenceServiceServicer_to_server(Gateway(client), server)
        try:
            port = server.add_insecure_port(address)
        except RuntimeError:  # its text only tells how to debug gRPC
            raise OSError(f"The gateway cannot listen at {address}; is the port taken?") from None
        await server.start()
        ended = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
        on_ready(port)
        await ended.wait()
        await server.stop(SECONDS_TO_FINISH)


async def _or_abort(context: Any, asked: Awaitable[Message]) -> Message:
    """Return an answer; what is refused ends the call with its status."""
    try:
        return await asked
    except UpstreamError as error:
        await context.abort(error.code, str(error))
        raise  # abort has raised already
