"""infinity with the same checkpoint, in float32, started as its documentation advises for CPUs.

https://michaelfeil.eu/infinity/latest/
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.contenders.external import ExternalContender
from benchmarks.contenders.openai_embeddings import embeddings_body
from hf_serve.scripts.serving.ports import HOST

START = "from infinity_emb.cli import cli; cli()"
# BetterTransformer and torch.compile are for GPUs.
OPTIONS = ("--engine", "torch", "--device", "cpu", "--no-compile", "--no-bettertransformer")


class Infinity(ExternalContender):
    """A model of embeddings on infinity.

    Args:
        checkpoint: the model.
        work: folder for the log.
    """

    name = "infinity"
    precision = "float32"
    environment = ".venv-infinity"
    route = "/embeddings"
    health = "/health"

    def __init__(self, checkpoint: Path, work: Path) -> None:
        super().__init__(work)
        self._checkpoint = checkpoint

    def command(self, port: int) -> list[str | Path]:
        model = ("--model-id", self._checkpoint, "--served-model-name", "model")
        return ["-c", START, "v2", *model, *OPTIONS, "--host", HOST, "--port", str(port)]

    def body(self, inputs: Any) -> str:
        return embeddings_body(inputs)
