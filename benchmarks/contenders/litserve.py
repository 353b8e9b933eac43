"""LitServe with the checkpoint, dtype and batch size of the kit."""

from __future__ import annotations

from pathlib import Path

from benchmarks.contenders.foreign import Foreign

PROGRAM = Path(__file__).with_name("litserve_api.py")
BATCH_TIMEOUT = 0.005  # seconds


class LitServe(Foreign):
    """A sequence classifier behind LitServe.

    Args:
        checkpoint: the model.
        work: takes its log.
        precision: the dtype that it computes in.
        batch: the most rows that it runs together.
    """

    name = "litserve"
    environment = ".venv-bench"
    route = "/predict"
    health = "/health"

    def __init__(self, checkpoint: Path, work: Path, precision: str, batch: int) -> None:
        super().__init__(work)
        self.precision = precision
        self._checkpoint, self._batch = checkpoint, batch

    def command(self, port: int) -> list[str | Path]:
        numbers = map(str, (port, self._batch, BATCH_TIMEOUT))
        # -P: the file beside the program that is called litserve.py is not the package.
        return ["-P", PROGRAM, self._checkpoint, self.precision, *numbers]
