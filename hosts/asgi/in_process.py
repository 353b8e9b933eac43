"""Archives in this process behind the application, without TorchServe.

It imports `handlers`, which has to be the archives': call `hosts.archives.import_from` first.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

from handlers.errors import ConfigError, Overloaded
from handlers.http.limits import BodyLimits
from hosts.archives import Archive
from hosts.asgi.backend import Answer, Backend, ModelEntry, ModelRequest, State
from hosts.asgi.errors import UnknownModel
from hosts.batch_metrics import BatchMetrics
from hosts.batcher import Batcher
from hosts.http import STREAMS, in_time, to_row
from hosts.model import ArchiveModel
from hosts.served_model import ServedModel

logger = logging.getLogger(__name__)


class LoadedModel:
    """A loaded archive with a queue of requests, which are answered in batches or side by side.

    Args:
        archive: the archive.
        name: the name under which it is served.
        limits: those of the bodies of requests and responses.

    Raises:
        ConfigError: the archive does not load, or is for TorchServe only.
    """

    def __init__(self, archive: Archive, name: str, limits: BodyLimits) -> None:
        report = BatchMetrics(name).report_batch
        model = ArchiveModel(archive.folder, name, archive.version, limits, report=report)
        info = model.engine.describe(name, archive.version)
        self._entry = ModelEntry(
            name, archive.version, mode=info.mode, adapters=tuple(info.adapters)
        )
        self.served = ServedModel(model, name, archive.version)
        self.batcher = Batcher(
            self.served.answer_batch, self.served.batch_size, self.served.batch_seconds
        )
        self.max_open = self.served.max_open
        self.open = 0

    @property
    def entry(self) -> ModelEntry:
        """The model, as lists of models describe it. One that has failed needs a new process."""
        try:
            self.served.check_health()
        except RuntimeError as error:
            name, version = self._entry.name, self._entry.version
            return ModelEntry(name, version, State.FAILED, str(error))
        return self._entry


class InProcessBackend(Backend):
    """Archives that are loaded in this process.

    Args:
        models: the loaded archives by name.
        failed: the archives that did not load.
        answer_seconds: how long a response, or its next part, may take.
    """

    def __init__(
        self,
        models: Mapping[str, LoadedModel],
        failed: Sequence[ModelEntry] = (),
        answer_seconds: float = 600.0,
    ) -> None:
        self._models, self._answer_seconds = models, answer_seconds
        self._failed = {entry.name: entry for entry in failed}

    async def start(self) -> None:
        """Do nothing: the archives are loaded."""

    async def close(self) -> None:
        """Do nothing: the process ends."""

    async def models(self, max_age: float) -> Mapping[str, ModelEntry]:
        return {**{name: model.entry for name, model in self._models.items()}, **self._failed}

    async def described_models(self) -> Mapping[str, ModelEntry]:
        return await self.models(0.0)

    @asynccontextmanager
    async def answer(self, request: ModelRequest) -> AsyncIterator[Answer]:
        model = self._model(request.route.model)
        if model.open >= model.max_open:
            raise Overloaded("The queue of this model is full; send the request again.")
        given = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers}
        row, types = await to_row(request.body, given.get("content-type", ""))
        headers: dict[str, Any] = {**given, **types, **request.route.headers}
        model.open += 1
        try:
            parts = model.served.answer(row, headers, request.route.version, model.batcher.answer)
            async with aclosing(parts):
                timed = in_time(parts, self._answer_seconds)
                status, content_type, own, first = await anext(timed)
                named = {"content-type": content_type, **own} if content_type else own
                bodies = _bodies(first, timed)
                if not content_type.startswith(STREAMS):
                    whole = b"".join([body async for body in bodies])
                    named["content-length"] = str(len(whole))
                    bodies = _bodies(whole)
                encoded = [
                    (name.encode(), value.encode("latin-1")) for name, value in named.items()
                ]
                yield Answer(status, encoded, bodies)
        finally:
            model.open -= 1

    async def metrics(self) -> bytes:
        return b""  # They are in the registry of this process.

    def _model(self, name: str) -> LoadedModel:
        """Return a model; without a name, the only one.

        Raises:
            UnknownModel: no model has this name, or there are several and the request names none.
        """
        if not name and len(self._models) == 1:
            return next(iter(self._models.values()))
        if name not in self._models:
            raise UnknownModel(name, sorted(self._models))
        return self._models[name]


def load(archives: Sequence[tuple[str, Archive]], limits: BodyLimits) -> InProcessBackend:
    """Load archives, each under a name. One that does not load is reported, and the others go on.

    Raises:
        ConfigError: none of them loads.
    """
    models, failed = dict[str, LoadedModel](), list[ModelEntry]()
    for name, archive in archives:
        try:
            models[name] = LoadedModel(archive, name, limits)
        except ConfigError as error:
            if len(failed) + 1 == len(archives):
                raise
            logger.error("%s did not load: %s", name, error)
            failed.append(ModelEntry(name, archive.version, State.FAILED, str(error)))
    return InProcessBackend(models, failed)


async def _bodies(first: bytes, parts: AsyncIterator[Any] | None = None) -> AsyncIterator[bytes]:
    yield first
    if parts is not None:
        async for *_, body in parts:
            yield body
