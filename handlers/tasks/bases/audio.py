"""The base of modes that read audio: decoding, feature extraction, and batches of equal shapes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ...batching.padding import ArrayRow
from ...checkpoints.checkpoint import Checkpoint
from ...checkpoints.probe_inputs import AnyLengthInputs, ArrayInputs
from ...config.handler_section import HandlerSection
from ...config.model_config import ModelConfig
from ...errors import RequestTooLarge, Unprocessable, summarize
from ...media.audio import AUDIO, INSTALL, PACKAGES, Samples, read_audio
from ...model import Model
from ...process.packages import require_package
from ...types.model_info import AUDIO_COLUMN, Rows, Wire
from .media import MediaInput, MediaTask

# A minute at 16 kHz.
DEFAULT_BATCH_SAMPLES = 960_000
# Shorter audio has not one frame of some models.
MIN_SECONDS = 0.1
# Rows of this audio have one shape where the feature extractor pads all audio to one length.
PROBE_SECONDS = (1.0, 1.7, 0.6)
AUDIO_ROWS = Rows(
    kind="arrays",
    supports_packing=False,
    cost_unit="samples",
    smaller_requests="fewer or shorter files",
)
# 0.1 seconds of silence, as FLAC in base64.
EXAMPLE = {
    "inputs": (
        "ZkxhQwAAACIQABAAAAANAAANA+gA8AAABkCfCt/b50DLnNgYijV2HiR2hAAAKCAAAAByZWZlcmVuY2Ug"
        "bGliRkxBQyAxLjQuMyAyMDIzMDYyMwAAAAD/+HUIAAY/NAAAAGe/"
    )
}
# Declares a mode whose inputs are one audio file.
audio_wire = partial(Wire, inputs=str, example=EXAMPLE, input_columns=(AUDIO_COLUMN,))


class AudioTask(MediaTask[ArrayRow]):
    """A mode that reads audio.

    Rows of waveforms are not padded to one length: many models have no attention mask, and
    normalize a row with its padding.
    """

    extractor_options: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        super().__init__(checkpoint, settings, AUDIO, settings.max_audio_bytes)
        for package in PACKAGES:
            require_package(package, f"mode: {settings.mode}", INSTALL)
        self.feature_extractor: Any = checkpoint.feature_extractor
        self.sampling_rate = int(self.feature_extractor.sampling_rate)
        row = self.extract(np.zeros(self.sampling_rate, np.float32))
        # Spectrograms of a fixed length are taken, however large they are.
        self.most_samples = max(self.budget, row.size)

    def rows_of(self, item: MediaInput, samples: Samples) -> list[ArrayRow]:
        """Return the rows of an input, from the samples of its file. Shape: (samples,).

        Raises:
            RequestError: the model does not take them.
        """
        return [self._checked(self.extract(samples))]

    def warmup_batches(self, config: ModelConfig, model: Model) -> list[list[Any]]:
        """Return silence of a second, two rows and one."""
        row = self.extract(np.zeros(self.sampling_rate, np.float32))
        return [[row] * 2, [row]]

    def extract(self, samples: Samples) -> ArrayRow:
        """Return the row of samples. Shape: (samples,)."""
        features: Mapping[str, Any] = self.feature_extractor(
            samples,
            sampling_rate=self.sampling_rate,
            return_tensors="np",
            **self.extractor_options,
        )
        arrays = {name: np.asarray(values[0]) for name, values in features.items()}
        return ArrayRow(arrays, max(array.size for array in arrays.values()))

    @property
    def graph_inputs(self) -> ArrayInputs:
        lengths = (round(seconds * self.sampling_rate) for seconds in PROBE_SECONDS)
        first, *others = (self.extract(np.zeros(length, np.float32)) for length in lengths)
        if all(row.shape == first.shape for row in others):
            return ArrayInputs(first.features)
        return AnyLengthInputs(first.features, [row.features for row in others])

    @property
    def budget(self) -> int:
        """The maximum number of samples in one forward, or of numbers of spectrograms."""
        return self.settings.max_batch_samples or DEFAULT_BATCH_SAMPLES

    def read(self, item: MediaInput, file: bytes) -> list[ArrayRow]:
        samples = read_audio(file, "The audio", self.sampling_rate, self.settings.max_audio_seconds)
        seconds = len(samples) / self.sampling_rate
        if seconds < MIN_SECONDS:
            raise Unprocessable(
                f"The audio has {seconds:.3f} seconds; send at least {MIN_SECONDS:g}."
            )
        try:
            return self.rows_of(item, samples)
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
