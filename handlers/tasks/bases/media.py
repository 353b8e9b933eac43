"""The base of modes that read files: fetching and reading them, and batches of equal shapes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch

from ...batching.padding import ArrayRow, Tensors, group_by_shape, run_by_shape, stack
from ...batching.rows import RowOutcome
from ...checkpoints.checkpoint import Checkpoint
from ...config.handler_section import HandlerSection
from ...errors import RequestError, attempt
from ...media.files import MediaFiles, MediaType, RemoteFile
from ...model import Model
from ...process.deadline import NO_DEADLINE, Deadline, before
from ...telemetry.metrics import Meter
from ...types.model_info import Limits
from ...types.request import Request
from ..base import BaseTask

# Reading a file costs as much as encoding this number of characters: the time limit is checked
# after each 16 files.
FILE_CHARACTERS = 62_500

MediaRowT = TypeVar("MediaRowT", bound=ArrayRow)
InputT = TypeVar("InputT")
ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class MediaInput:
    """A file, and what to do with it."""

    file: bytes | RemoteFile
    parameters: Any


class MediaReader:
    """Reads the files of requests in separate threads, before the model is called.

    Attributes:
        files: takes files out of requests.
        threads: the threads.
    """

    def __init__(self, settings: HandlerSection, media_type: MediaType, max_bytes: int) -> None:
        hosts, timeout = settings.allowed_media_hosts, settings.media_timeout
        self.files = MediaFiles(media_type, max_bytes, hosts, timeout)
        self.threads = ThreadPoolExecutor(torch.get_num_threads(), thread_name_prefix="media")

    def read(
        self,
        function: Callable[[InputT, Sequence[bytes]], ResultT],
        inputs: Sequence[InputT],
        files: Sequence[Sequence[bytes | RemoteFile]],
    ) -> list[ResultT | RequestError]:
        """Return what a function makes of each input and the bytes of its files, or its error.

        A file that cannot be fetched is the error of its input.
        """
        fetched = iter(self.files.fetch([file for each in files for file in each]))
        own = [[next(fetched) for _ in each] for each in files]
        return list(self.threads.map(partial(attempt, partial(_read, function)), inputs, own))


def _read(
    function: Callable[[InputT, Sequence[bytes]], ResultT],
    item: InputT,
    files: Sequence[bytes | RequestError],
) -> ResultT:
    read: list[bytes] = []
    for file in files:
        if isinstance(file, RequestError):
            raise file
        read.append(file)
    return function(item, read)


class MediaTask(BaseTask[MediaInput, MediaRowT]):
    """A mode whose requests have files. Rows of equal shapes share a forward."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        settings: HandlerSection,
        media_type: MediaType,
        max_bytes: int,
    ) -> None:
        super().__init__(checkpoint, settings)
        self._reader = MediaReader(settings, media_type, max_bytes)
        self.files, self._threads = self._reader.files, self._reader.threads

    @abstractmethod
    def read(self, item: MediaInput, file: bytes) -> list[MediaRowT]:
        """Return the rows of an input, from the bytes of its file.

        Raises:
            RequestError: they cannot be read, or the model does not take them.
        """

    @property
    @abstractmethod
    def budget(self) -> int:
        """The maximum cost of the rows of one forward."""

    def parse(self, request: Request) -> MediaInput:
        parameters = self.read_parameters(request.parameters)
        return MediaInput(self.files.file(request.inputs, "inputs"), parameters)

    def encode(self, inputs: Sequence[MediaInput]) -> list[list[MediaRowT] | RequestError]:
        return self._reader.read(
            lambda item, files: self.read(item, *files),
            inputs,
            [[item.file] for item in inputs],
        )

    def run(
        self,
        model: Model,
        rows: Sequence[MediaRowT],
        meter: Meter,
        deadline: Deadline = NO_DEADLINE,
    ) -> Sequence[RowOutcome]:
        return run_by_shape(
            before(deadline, partial(self.forward, model)),
            rows,
            budget=self.budget,
            meter=meter,
            postprocess=self.postprocess,
            collate=self.forward_batch,
        )

    def forward_batch(self, rows: Sequence[MediaRowT]) -> Tensors:
        """Return rows as the batch that :meth:`forward` takes, by default the model's."""
        return self.collate(rows)

    def forward(self, model: Model, batch: Tensors) -> Mapping[str, torch.Tensor]:
        """Return the outputs of a batch, whose first dimension is its rows."""
        return model.forward(batch)

    def collate(self, rows: Sequence[MediaRowT]) -> Tensors:
        return stack(rows)

    def groups(self, rows: Sequence[MediaRowT]) -> list[Sequence[MediaRowT]]:
        return [[rows[index] for index in group] for group in group_by_shape(rows, self.budget)]

    def encoding_cost(self, item: MediaInput) -> int:
        return FILE_CHARACTERS

    @property
    def limits(self) -> Limits:
        return Limits(
            max_length=None,
            max_rows=self.settings.max_rows,
            max_characters=self.files.max_characters,
            truncation=False,
        )
