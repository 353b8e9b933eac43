"""The base of modes that read audio: decoding, feature extraction, and batches of equal shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from handlers.batching.padding import Batch
from handlers.batching.rows import RowOutcome
from handlers.batching.shapes import ArrayRow, run_by_shape, stack
from handlers.checkpoints.checkpoint import Checkpoint
from handlers.checkpoints.graph_inputs import ArrayInputs
from handlers.config.handler_section import HandlerSection
from handlers.config.model_config import ModelConfig
from handlers.errors import RequestError, RequestTooLarge, Unprocessable, attempt, summarize
from handlers.media.audio import AUDIO, INSTALL, PACKAGES, Samples, read_audio
from handlers.media.files import MediaFiles
from handlers.media.remote import RemoteFile
from handlers.runtime.deadline import NO_DEADLINE, Deadline, before
from handlers.runtime.imports import require_package
from handlers.runtime.model import Model
from handlers.schemas.model_info import AUDIO_COLUMN, Limits
from handlers.schemas.request import Request
from handlers.tasks.base import BaseTask
from handlers.telemetry.meter import Meter

# A minute at 16 kHz.
DEFAULT_BATCH_SAMPLES = 960_000
# Shorter audio has not one frame of some models.
MIN_SECONDS = 0.1
# 0.1 seconds of silence, as FLAC in base64.
SAMPLE_INPUTS = {
    "inputs": (
        "ZkxhQwAAACIQABAAAAANAAANA+gA8AAABkCfCt/b50DLnNgYijV2HiR2hAAAKCAAAAByZWZlcmVuY2Ug"
        "bGliRkxBQyAxLjQuMyAyMDIzMDYyMwAAAAD/+HUIAAY/NAAAAGe/"
    )
}


@dataclass(frozen=True)
class AudioQuery:
    """An audio file, and what to do with it."""

    file: bytes | RemoteFile
    parameters: Any


class AudioTask(BaseTask[AudioQuery, ArrayRow]):
    """A mode that reads audio.

    Audio is decoded and its features are extracted in threads of its own, before the model is
    called. Rows of equal shapes share a forward. Rows of waveforms are not padded to one length:
    many models have no attention mask, and normalize a row with its padding.
    """

    row_kind = "arrays"
    packs = False
    exports = False
    reads_media = True
    input_columns = (AUDIO_COLUMN,)

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        super().__init__(checkpoint, settings)
        for package in PACKAGES:
            require_package(package, f"mode: {settings.mode}", INSTALL)
        self.feature_extractor: Any = checkpoint.feature_extractor
        self.sampling_rate = int(self.feature_extractor.sampling_rate)
        row = self.extract(np.zeros(self.sampling_rate, np.float32))
        # Spectrograms of a fixed length are taken, however large they are.
        self.most_samples = max(self.budget, row.size)
        self.files = MediaFiles(
            AUDIO, settings.max_audio_bytes, settings.allowed_media_hosts, settings.media_timeout
        )
        self._threads = ThreadPoolExecutor(torch.get_num_threads(), thread_name_prefix="audio")

    def parse(self, request: Request) -> AudioQuery:
        parameters = self.read_parameters(request.parameters)
        return AudioQuery(self.files.file(request.inputs, "inputs"), parameters)

    def encode(self, queries: Sequence[AudioQuery]) -> list[list[ArrayRow] | RequestError]:
        files = self.files.fetch([query.file for query in queries])
        read = self._threads.map(
            lambda query, file: attempt(self._read, query, file), queries, files
        )
        return list(read)

    def rows_of(self, query: AudioQuery, samples: Samples) -> list[ArrayRow]:
        """Return the rows of a query, from the samples of its file. Shape: (samples,).

        Raises:
            RequestError: the model does not take them.
        """
        return [self._checked(self.extract(samples))]

    def run(
        self,
        model: Model,
        rows: Sequence[ArrayRow],
        meter: Meter,
        deadline: Deadline = NO_DEADLINE,
    ) -> Sequence[RowOutcome]:
        return run_by_shape(
            before(deadline, model.forward),
            rows,
            budget=self.budget,
            meter=meter,
            keep=self.keep,
        )

    def collate(self, rows: Sequence[ArrayRow]) -> Batch:
        return stack(rows)

    def warmup_batches(self, config: ModelConfig, model: Model) -> list[list[Any]]:
        """Return silence of a second, two rows and one."""
        row = self.extract(np.zeros(self.sampling_rate, np.float32))
        return [[row] * 2, [row]]

    def extract(self, samples: Samples) -> ArrayRow:
        """Return the row of samples. Shape: (samples,)."""
        features: Mapping[str, Any] = self.feature_extractor(
            samples, sampling_rate=self.sampling_rate, return_tensors="np"
        )
        arrays = {name: np.asarray(values[0]) for name, values in features.items()}
        return ArrayRow(arrays, max(array.size for array in arrays.values()))

    @property
    def graph_inputs(self) -> ArrayInputs:
        return ArrayInputs(self.extract(np.zeros(self.sampling_rate, np.float32)).features)

    @property
    def budget(self) -> int:
        """The maximum number of samples in one forward, or of numbers of spectrograms."""
        return self.settings.max_batch_samples or DEFAULT_BATCH_SAMPLES

    @property
    def limits(self) -> Limits:
        return Limits(
            max_length=None,
            max_rows=self.settings.max_rows,
            max_characters=self.files.max_characters,
            truncation=False,
        )

    def _read(self, query: AudioQuery, file: bytes | RequestError) -> list[ArrayRow]:
        if isinstance(file, RequestError):
            raise file
        samples = read_audio(file, "The audio", self.sampling_rate, self.settings.max_audio_seconds)
        seconds = len(samples) / self.sampling_rate
        if seconds < MIN_SECONDS:
            raise Unprocessable(
                f"The audio has {seconds:.3f} seconds; send at least {MIN_SECONDS:g}."
            )
        try:
            return self.rows_of(query, samples)
        except ValueError as error:
            raise Unprocessable(
                f"The audio has {seconds:.3f} seconds, which the feature extractor of this model"
                f" does not take ({summarize(error)}); send longer audio."
            ) from None

    def _checked(self, row: ArrayRow) -> ArrayRow:
        """Return a row.

        Raises:
            RequestTooLarge: it alone has more samples than a batch.
        """
        if row.size > self.most_samples:
            raise RequestTooLarge(
                f"The audio has {row.size:,} samples after preprocessing, and this model takes"
                f" {self.most_samples:,}; send shorter audio."
            )
        return row
