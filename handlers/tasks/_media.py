"""The base of modes that read files: fetching and reading them, and batches of equal shapes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch

from handlers.batching.padding import Batch
from handlers.batching.rows import RowOutcome
from handlers.batching.shapes import ArrayRow, group_by_shape, run_by_shape, stack
from handlers.checkpoints.checkpoint import Checkpoint
from handlers.config.handler_section import HandlerSection
from handlers.errors import RequestError, attempt
from handlers.media.files import MediaFiles, MediaType
from handlers.media.remote import RemoteFile
from handlers.runtime.deadline import NO_DEADLINE, Deadline, before
from handlers.runtime.model import Model
from handlers.schemas.model_info import Limits
from handlers.schemas.request import Request
from handlers.tasks.base import BaseTask
from handlers.telemetry.meter import Meter

MediaRowT = TypeVar("MediaRowT", bound=ArrayRow)


@dataclass(frozen=True)
class MediaQuery:
    """A file, and what to do with it."""

    file: bytes | RemoteFile
    parameters: Any


class MediaTask(BaseTask[MediaQuery, MediaRowT]):
    """A mode whose requests have files.

    Files are read in threads of its own, before the model is called. Rows of equal shapes share a
    forward.

    Args:
        checkpoint: the checkpoint.
        settings: the `handler:` section of the YAML.
        media_type: the kind of the files.
        max_bytes: the maximum number of bytes of a file.
    """

    row_kind = "arrays"
    packs = False
    exports = False
    reads_media = True

    def __init__(
        self,
        checkpoint: Checkpoint,
        settings: HandlerSection,
        media_type: MediaType,
        max_bytes: int,
    ) -> None:
        super().__init__(checkpoint, settings)
        hosts, timeout = settings.allowed_media_hosts, settings.media_timeout
        self.files = MediaFiles(media_type, max_bytes, hosts, timeout)
        self._threads = ThreadPoolExecutor(torch.get_num_threads(), thread_name_prefix="media")

    @abstractmethod
    def read(self, query: MediaQuery, file: bytes) -> list[MediaRowT]:
        """Return the rows of a query, from the bytes of its file.

        Raises:
            RequestError: they cannot be read, or the model does not take them.
        """

    @property
    @abstractmethod
    def budget(self) -> int:
        """The maximum cost of the rows of one forward."""

    def parse(self, request: Request) -> MediaQuery:
        parameters = self.read_parameters(request.parameters)
        return MediaQuery(self.files.file(request.inputs, "inputs"), parameters)

    def encode(self, queries: Sequence[MediaQuery]) -> list[list[MediaRowT] | RequestError]:
        files = self.files.fetch([query.file for query in queries])
        return list(self._threads.map(partial(attempt, self._read_fetched), queries, files))

    def run(
        self,
        model: Model,
        rows: Sequence[MediaRowT],
        meter: Meter,
        deadline: Deadline = NO_DEADLINE,
    ) -> Sequence[RowOutcome]:
        return run_by_shape(
            before(deadline, model.forward),
            rows,
            budget=self.budget,
            meter=meter,
            keep=self.keep,
            collate=self.collate,
        )

    def collate(self, rows: Sequence[MediaRowT]) -> Batch:
        return stack(rows)

    def groups(self, rows: Sequence[MediaRowT]) -> list[Sequence[MediaRowT]]:
        return [[rows[index] for index in group] for group in group_by_shape(rows, self.budget)]

    @property
    def limits(self) -> Limits:
        return Limits(
            max_length=None,
            max_rows=self.settings.max_rows,
            max_characters=self.files.max_characters,
            truncation=False,
        )

    def _read_fetched(self, query: MediaQuery, file: bytes | RequestError) -> list[MediaRowT]:
        if isinstance(file, RequestError):
            raise file
        return self.read(query, file)
