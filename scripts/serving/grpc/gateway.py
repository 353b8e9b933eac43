"""A gRPC server for the Open Inference Protocol in front of TorchServe.

TorchServe's own gRPC API uses a different package name, drops raw contents and parameters and does
not report errors, so clients of Triton and KServe cannot use it. This gateway calls it over HTTP.
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

from hf_serve.scripts.serving.grpc.tensors import to_http_body, to_infer_response
from hf_serve.scripts.serving.grpc.upstream import Upstream, UpstreamError

JSON_LENGTH_HEADER = "Inference-Header-Content-Length"
BINARY = "application/octet-stream"
MAX_MESSAGE_BYTES = 64 * 2**20  # above TorchServe's default limit, so that it reports the error
GRACE_SECONDS = 5

Message = TypeVar("Message")


class Gateway(stubs.GRPCInferenceServiceServicer):
    """The inference service of the protocol, without Triton's extensions such as statistics."""

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
        response = await _or_abort(context, self._upstream(context).request("OPTIONS", "/"))
        version = response.json()["info"]["version"]
        return messages.ServerMetadataResponse(name="torchserve", version=version)

    async def ModelMetadata(self, request: Any, context: Any) -> Any:
        pending = self._upstream(context).request_model(request.name, request.version)
        response = await _or_abort(context, pending)
        return ParseDict(response.json(), messages.ModelMetadataResponse())

    async def ModelInfer(self, request: Any, context: Any) -> Any:
        return await _or_abort(context, self._infer(request, context))

    async def ModelStreamInfer(self, requests: Any, context: Any) -> AsyncIterator[Any]:
        """Answer the requests of a stream in order; an error does not end the stream."""
        async for request in requests:
            try:
                answer = await self._infer(request, context)
            except UpstreamError as error:
                empty = messages.ModelInferResponse(model_name=request.model_name, id=request.id)
                yield messages.ModelStreamInferResponse(
                    error_message=str(error), infer_response=empty
                )
            else:
                # Triton marks the last response of a request; here each request has one response.
                answer.parameters["triton_final_response"].bool_param = True
                yield messages.ModelStreamInferResponse(infer_response=answer)

    async def _infer(self, request: Any, context: Any) -> Any:
        body, length = to_http_body(request)
        headers = {JSON_LENGTH_HEADER: str(length), "Content-Type": BINARY}
        answer = await self._upstream(context).request_model(
            request.model_name, request.model_version, "/infer", body, headers
        )
        size = int(answer.headers[JSON_LENGTH_HEADER])
        return to_infer_response(answer.content, size, raw=bool(request.raw_input_contents))

    def _upstream(self, context: Any) -> Upstream:
        return Upstream(self._client, context)


async def serve(target: str, address: str, on_ready: Callable[[int], None]) -> None:
    """Serve until the process receives SIGINT or SIGTERM.

    Args:
        address: the address to listen on; port 0 selects a free port.
        on_ready: called with the port once the server accepts calls.

    Raises:
        OSError: the address cannot be bound.
    """
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
    async with httpx.AsyncClient(base_url=target, limits=limits, trust_env=False) as client:
        server = grpc.aio.server(
            options=[
                ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
                ("grpc.max_send_message_length", -1),
                ("grpc.so_reuseport", 0),  # otherwise a port in use would be shared
            ]
        )
        stubs.add_GRPCInferenceServiceServicer_to_server(Gateway(client), server)
        try:
            port = server.add_insecure_port(address)
        except RuntimeError:  # its message only explains how to debug gRPC
            raise OSError(f"The gateway cannot listen at {address}; is the port taken?") from None
        await server.start()
        stopped = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        on_ready(port)
        await stopped.wait()
        await server.stop(GRACE_SECONDS)


async def _or_abort(context: Any, pending: Awaitable[Message]) -> Message:
    """Return a response; an upstream error ends the call with its status."""
    try:
        return await pending
    except UpstreamError as error:
        await context.abort(error.code, str(error))
        raise  # abort has raised already
