"""The deployment of a model: replicas, each with an archive's engine."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import ray
from ray import serve

from hf_serve.hosts.archives import import_from, open_archive
from hf_serve.hosts.async_model import AsyncModel, Part


class Replica:
    """Loads an archive and answers requests in batches, or side by side."""

    def __init__(
        self, archive: str, name: str, max_request_bytes: int, max_response_bytes: int
    ) -> None:
        opened = open_archive(Path(archive))
        import_from(opened.folder)
        # Imports the archive's own `handlers`.
        from hf_serve.handlers.http.limits import BodyLimits  # noqa: PLC0415
        from hf_serve.hosts.archive_model import ArchiveModel  # noqa: PLC0415

        device = "cuda" if ray.get_gpu_ids() else "cpu"
        limits = BodyLimits(max_request_bytes, max_response_bytes)
        model = ArchiveModel(opened.folder, name, opened.version, limits, device)
        self._model = AsyncModel(model, name, opened.version)
        self._answer_batch.set_max_batch_size(self._model.batch_size)
        self._answer_batch.set_batch_wait_timeout_s(self._model.batch_seconds)

    async def answer(
        self, row: Mapping[str, Any], headers: Mapping[str, Any], version: str
    ) -> AsyncGenerator[Part, None]:
        """Yield the parts of the response to a request; arguments as of `AsyncModel.answer`."""
        parts = self._model.answer(row, headers, version, self._answer_batch)
        async with aclosing(parts):
            async for part in parts:
                yield part

    @serve.batch  # type: ignore[untyped-decorator]
    async def _answer_batch(self, batch: list[Any]) -> list[None]:
        await self._model.answer_batch(batch)
        return [None] * len(batch)

    def check_health(self) -> None:
        """Raise an error where this process has to be replaced: Ray Serve calls it."""
        self._model.check_health()
