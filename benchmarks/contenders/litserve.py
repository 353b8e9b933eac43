"""LitServe with the same checkpoint, dtype and batch size as this kit."""

from __future__ import annotations

from pathlib import Path

from benchmarks.contenders.external import ExternalContender

PROGRAM = Path(__file__).with_name("litserve_api.py")
BATCH_TIMEOUT = 0.005  # seconds


class LitServe(ExternalContender):
    """A sequence classifier behind LitServe.

    Args:
        checkpoint: the model.
        work: folder for the log.
        precision: the dtype of the model.
        batch: the maximum batch size.
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
        # -P: do not import litserve.py beside the program instead of the package.
        return ["-P", PROGRAM, self._checkpoint, self.precision, *numbers]
