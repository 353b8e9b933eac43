"""LitServe with an image classifier: the same checkpoint and batch size as this kit."""

from __future__ import annotations

from pathlib import Path

from benchmarks.contenders.litserve import BATCH_TIMEOUT, LitServe

PROGRAM = Path(__file__).with_name("litserve_images_api.py")


class LitServeImages(LitServe):
    """An image classifier behind LitServe.

    Args:
        name: the contender's name.
        checkpoint: the model.
        work: folder for the log.
        precision: the dtype of the model.
        batch: the maximum batch size.
    """

    def __init__(self, name: str, checkpoint: Path, work: Path, precision: str, batch: int) -> None:
        self.name = name  # which the log has
        super().__init__(checkpoint, work, precision, batch)

    def command(self, port: int) -> list[str | Path]:
        numbers = map(str, (port, self._batch, BATCH_TIMEOUT))
        return ["-P", PROGRAM, self._checkpoint, self.precision, *numbers]
