"""Archives in this process behind the application, without TorchServe.

It imports the handlers of the archives: call `hf_serve.hosts.archives.import_from` first.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from hf_serve.handlers.errors import Overloaded
from hf_serve.handlers.http.limits import BodyLimits
from hf_serve.hosts.archive_model import ArchiveModel
from hf_serve.hosts.archives import Archive, ArchiveError, require_same_code
from hf_serve.hosts.asgi.backend import ModelEntry, State
from hf_serve.hosts.asgi.errors import UnknownModel
from hf_serve.hosts.asgi.parts import PartsBackend
from hf_serve.hosts.asgi.served_files import Changes, NameTaken, ServedFiles, name_of
from hf_serve.hosts.async_model import AsyncModel, Part
from hf_serve.hosts.batch_metrics import BatchMetrics
from hf_serve.hosts.batcher import Batcher
from hf_serve.hosts.command_line import sentence_of

Value = TypeVar("Value")

logger = logging.getLogger(__name__)


class LoadedModel:
    """A loaded archive with a queue of requests, which are answered in batches or side by side.

    Args:
        archive: the archive.
        name: the name under which it is served.
        limits: the limits of the bodies of requests and responses.

    Raises:
        ConfigError: the archive does not load, or is for TorchServe only.
    """

    def __init__(self, archive: Archive, name: str, limits: BodyLimits) -> None:
        self.name = name
        self._metrics = BatchMetrics(name)
        report = self._metrics.report_batch
        model = ArchiveModel(archive.folder, name, archive.version, limits, report=report)
        info = model.engine.describe(name, archive.version)
        self._entry = ModelEntry(
            name,
            archive.version,
            mode=info.mode,
            adapters=tuple(info.adapters),
            max_model_len=info.limits.max_total_tokens,
        )
        self._served = AsyncModel(model, name, archive.version)
        self._batcher = Batcher(
            self._served.answer_batch,
            self._served.batch_size,
            self._served.batch_seconds,
            self._metrics.observe_queue,
        )
        self._open = 0
        self._is_closing = False

    @property
    def entry(self) -> ModelEntry:
        """The model, as lists of models describe it. One that has failed needs a new process."""
        try:
            self._served.check_health()
        except RuntimeError as error:
            return replace(self._entry, state=State.FAILED, error=str(error))
        return self._entry

    async def answer(
        self, row: Mapping[str, Any], headers: Mapping[str, Any], version: str
    ) -> AsyncGenerator[Part, None]:
        """Yield the parts of a response; arguments as of `AsyncModel.answer`.

        Raises:
            Overloaded: the queue is full.
        """
        if self._open >= self._served.max_open:
            raise Overloaded("The queue of this model is full; send the request again.")
        self._open += 1
        start = time.monotonic()
        try:
            parts = self._served.answer(row, headers, version, self._batcher.answer)
            async with aclosing(parts):
                async for part in parts:
                    yield part
        finally:
            self._open -= 1
            self._close_if_done()
            explains = headers.get("explain") == "True"
            self._metrics.observe_request(time.monotonic() - start, explains=explains)

    def close(self) -> None:
        """Free the model once it has answered its requests."""
        self._is_closing = True
        self._close_if_done()

    def _close_if_done(self) -> None:
        if self._is_closing and not self._open:
            self._batcher.close()


class InProcessBackend(PartsBackend):
    """Archives that are loaded in this process, which follow the files in watched folders.

    Args:
        files: the archives and folders.
        first: the archive whose `handlers` this process imports.
        limits: the limits of the bodies of requests and responses.
        answer_seconds: how long a response, or its next part, may take.
    """

    def __init__(
        self,
        files: ServedFiles,
        first: Archive,
        limits: BodyLimits,
        answer_seconds: float = 600.0,
    ) -> None:
        super().__init__(answer_seconds)
        self._files, self._first, self._limits = files, first, limits
        # A thread loads archives while requests read these, so a change makes a new mapping.
        self._models: Mapping[Path, LoadedModel] = {}
        # What is wrong with files; an older model of the same file may still be served.
        self._errors: Mapping[Path, ModelEntry] = {}
        self._following: asyncio.Task[None] | None = None

    def load_all(self) -> None:
        """Load all files. One that does not load is reported, and the others are served.

        Raises:
            ArchiveError: none of them loads.
        """
        for path in self._files.paths():
            self._load(path)
        if not self._models:
            raise ArchiveError(" ".join(entry.error for entry in self._errors.values()))

    async def start(self) -> None:
        if self._files.is_watched:
            self._following = asyncio.create_task(self._files.follow(self._apply))

    async def close(self) -> None:
        if self._following:
            self._following.cancel()

    @property
    def needs_restart(self) -> bool:
        return any(model.entry.state == State.FAILED for model in self._models.values())

    async def models(self, max_age: float) -> Mapping[str, ModelEntry]:
        entries = {model.name: model.entry for model in self._models.values()}
        for failed in self._errors.values():
            loaded = entries.get(failed.name)
            entries[failed.name] = replace(loaded, error=failed.error) if loaded else failed
        return entries

    async def described_models(self) -> Mapping[str, ModelEntry]:
        return await self.models(0.0)

    async def parts(
        self, model: str, version: str, row: Mapping[str, Any], headers: Mapping[str, Any]
    ) -> AsyncGenerator[Part, None]:
        return self._model(model).answer(row, headers, version)

    async def _apply(self, changes: Changes) -> None:
        for path in changes.removed:
            model = self._models.get(path)
            self._models, self._errors = _without(self._models, path), _without(self._errors, path)
            if model:
                logger.info("%s was removed, and is not served any more", path)
                model.close()
        for path in changes.written:
            replaced = self._models.get(path)
            await asyncio.to_thread(self._load, path)
            if replaced and replaced is not self._models.get(path):
                replaced.close()

    def _load(self, path: Path) -> None:
        """Load a file in the place of what it was before, which is served until then."""
        name, version = name_of(path), ""
        try:
            name, archive = self._files.open(path)
            version = archive.version
            self._require_own_name(path, name)
            require_same_code([self._first, archive])
            self._models = {**self._models, path: LoadedModel(archive, name, self._limits)}
        except Exception as error:  # noqa: BLE001 - the other models are served
            reason = sentence_of(error)
            logger.error("%s did not load: %s", path, reason)
            failed = ModelEntry(name, version, State.FAILED, reason)
            self._errors = {**self._errors, path: failed}
        else:
            logger.info("%s is served as %s, version %s", path, name, version)
            self._errors = _without(self._errors, path)

    def _require_own_name(self, path: Path, name: str) -> None:
        others = (model.name for other, model in self._models.items() if other != path)
        if name in others:
            raise NameTaken(path, name)

    def _model(self, name: str) -> LoadedModel:
        """Return a model; without a name, the only one.

        Raises:
            UnknownModel: no model has this name, or there are several and the request names none.
        """
        models = {model.name: model for model in self._models.values()}
        if not name and len(models) == 1:
            return next(iter(models.values()))
        if name not in models:
            raise UnknownModel(name, sorted(models))
        return models[name]


def _without(mapping: Mapping[Path, Value], path: Path) -> Mapping[Path, Value]:
    return {key: value for key, value in mapping.items() if key != path}
