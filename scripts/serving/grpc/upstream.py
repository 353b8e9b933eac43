"""Send requests to TorchServe's REST API on behalf of a gRPC call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import grpc
import httpx

STATUSES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    404: grpc.StatusCode.NOT_FOUND,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    422: grpc.StatusCode.FAILED_PRECONDITION,
    503: grpc.StatusCode.UNAVAILABLE,
    507: grpc.StatusCode.RESOURCE_EXHAUSTED,
}


class UpstreamError(Exception):
    """TorchServe did not respond, or responded with an error."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code

    @classmethod
    def of(cls, answer: httpx.Response) -> UpstreamError:
        """Read the error message of a response, from the protocol or from TorchServe."""
        try:
            body = answer.json()
            text = str(body.get("error") or body["message"])
        except (ValueError, KeyError, AttributeError):
            text = f"TorchServe answered with status {answer.status_code}."
        return cls(STATUSES.get(answer.status_code, grpc.StatusCode.INTERNAL), text)


class Upstream:
    """TorchServe, called with the deadline and token of a gRPC call."""

    def __init__(self, client: httpx.AsyncClient, context: Any) -> None:
        self._client = client
        self._seconds: float | None = context.time_remaining()
        token = dict(context.invocation_metadata()).get("authorization")
        self._headers = {"Authorization": str(token)} if token else {}

    async def request(
        self, method: str, url: str, content: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        """Send a request and return the response.

        Raises:
            UpstreamError: the response is an error, or there is none.
        """
        sent = {**self._headers, **(headers or {})}
        try:
            answer = await self._client.request(
                method, url, content=content, headers=sent, timeout=self._seconds
            )
        except httpx.TimeoutException:
            code = grpc.StatusCode.DEADLINE_EXCEEDED
            raise UpstreamError(code, "TorchServe did not answer in time.") from None
        except httpx.TransportError as error:
            reason = f"TorchServe cannot be reached: {type(error).__name__}."
            raise UpstreamError(grpc.StatusCode.UNAVAILABLE, reason) from None
        if not answer.is_success:
            raise UpstreamError.of(answer)
        return answer

    async def request_model(
        self,
        name: str,
        version: str,
        end: str = "",
        content: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """Send a request to a model; without a version TorchServe uses the default one.

        Raises:
            UpstreamError: the response is an error, or there is none.
        """
        model = quote(name, safe="")
        path = f"v2/models/{model}{end}"
        if version:
            return await self._request_version(model, version, path, content, headers)
        # /predictions takes the next path segment as a version. This route does not, and forwards
        # the header in which TorchServe passes the path to handlers.
        forwarded = {**(headers or {}), "url_path": path}
        return await self.request("POST", f"/v2/models/{model}/infer", content, forwarded)

    async def _request_version(
        self, model: str, version: str, path: str, content: bytes, headers: Mapping[str, str] | None
    ) -> httpx.Response:
        """Send a request to a version; 1 is 1.0, as Triton's versions are whole numbers."""
        known = [version, f"{version}.0"] if version.isascii() and version.isdigit() else [version]
        for number, each in enumerate(known, 1):
            url = f"/predictions/{model}/{quote(each, safe='')}/{path}"
            try:
                return await self.request("POST", url, content, headers)
            except UpstreamError as error:
                if error.code != grpc.StatusCode.NOT_FOUND or number == len(known):
                    raise
        raise AssertionError("a version has an address")

    async def is_healthy(self) -> bool:
        """Return whether TorchServe is healthy."""
        try:
            await self.request("GET", "/ping")
        except UpstreamError:
            return False
        return True

    async def is_ready(self, name: str, version: str) -> bool:
        """Return whether a model is ready."""
        try:
            await self.request_model(name, version, "/ready")
        except UpstreamError:
            return False
        return True
