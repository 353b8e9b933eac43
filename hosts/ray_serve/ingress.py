"""The back end of the application whose models are applications of Ray Serve.

A model is an application with the model's name, so one that is deployed later is found, too.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from ray import serve
from ray.exceptions import RayActorError, RayTaskError, TaskCancelledError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError
from ray.serve.schema import ApplicationStatusOverview

from hf_serve.handlers.errors import InternalError, Overloaded
from hf_serve.hosts.asgi.backend import ModelEntry, State, described, with_description
from hf_serve.hosts.asgi.errors import UnknownModel
from hf_serve.hosts.asgi.parts import PartsBackend
from hf_serve.hosts.async_model import Part

MODEL = "Model"
RUNNING = "RUNNING"
FAILED = ("DEPLOY_FAILED", "UNHEALTHY")
STATUS_SECONDS = 1.0


class RayBackend(PartsBackend):
    """Replicas of Ray Serve.

    Args:
        answer_seconds: how long a response, or its next part, may take.
    """

    def __init__(self, answer_seconds: float) -> None:
        super().__init__(answer_seconds)
        self._handles: dict[str, Any] = {}
        self._entries: dict[str, ModelEntry] = {}
        self._described: dict[str, ModelEntry] = {}
        self._asked_at = -STATUS_SECONDS
        self._asking = asyncio.Lock()

    async def start(self) -> None:
        """Do nothing: Ray Serve runs."""

    async def close(self) -> None:
        """Do nothing: the process ends."""

    async def models(self, max_age: float) -> Mapping[str, ModelEntry]:
        """Return the models, as Ray Serve's controller described them within the last second."""
        async with self._asking:
            if time.monotonic() - self._asked_at > STATUS_SECONDS:
                found = (await asyncio.to_thread(serve.status)).applications
                self._asked_at = time.monotonic()
                self._entries = {
                    name: _entry(name, each)
                    for name, each in found.items()
                    if MODEL in each.deployments
                }
        return self._entries

    async def described_models(self) -> Mapping[str, ModelEntry]:
        entries = await self.models(0.0)
        found = await asyncio.gather(*map(self._describe, entries.values()))
        return {entry.name: entry for entry in found}

    async def parts(
        self, model: str, version: str, row: Mapping[str, Any], headers: Mapping[str, Any]
    ) -> AsyncGenerator[Part, None]:
        handle = await self._handle(model)
        return _parts(handle.answer.remote(row, headers, version))

    async def _describe(self, entry: ModelEntry) -> ModelEntry:
        """Return an entry with mode, adapters and limit, which the model itself tells."""
        if entry.name not in self._described and entry.state == State.READY:
            info, listed = await asyncio.gather(
                self._ask(entry.name, "info"), self._ask(entry.name, "v1/models")
            )
            self._described[entry.name] = described(entry, info, listed)
        known = self._described.get(entry.name, entry)
        return with_description(entry, known)

    async def _ask(self, name: str, path: str) -> Any:
        parts = await self.parts(name, "", {}, {"url_path": path})
        return json.loads(b"".join([body async for *_, body in parts]))

    async def _handle(self, name: str) -> Any:
        """Return what sends requests to a model; without a name, to the only one.

        Raises:
            UnknownModel: no model has this name, or there are several and the request names none.
        """
        models = await self.models(STATUS_SECONDS)
        name = name or (next(iter(models)) if len(models) == 1 else "")
        if name not in models:
            raise UnknownModel(name, sorted(models))
        if name not in self._handles:
            handle = serve.get_deployment_handle(MODEL, name)
            self._handles[name] = handle.options(stream=True)
        return self._handles[name]


async def _parts(parts: Any) -> AsyncGenerator[Part, None]:
    """Yield the parts of the response of a replica.

    Raises:
        Overloaded: the queue is full, or the replica ended.
    """
    try:
        async for part in parts:
            yield part
    except BackPressureError:
        raise Overloaded("The queue of this model is full; send the request again.") from None
    except (RayActorError, DeploymentUnavailableError, TaskCancelledError):
        raise Overloaded(
            "The replica of this model ended, and another one starts; send the request again."
        ) from None
    except RayTaskError as error:
        raise InternalError(error) from None


def _entry(name: str, model: ApplicationStatusOverview) -> ModelEntry:
    states = model.deployments[MODEL].replica_states
    if any(count for state, count in states.items() if state == RUNNING):
        return ModelEntry(name)
    if model.status in FAILED:
        return ModelEntry(name, state=State.FAILED, error=model.message)
    return ModelEntry(name, state=State.LOADING)
