"""From a folder to a served model, and from requests to answers. No TorchServe, no HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import torch

from handlers.attempts import attempt
from handlers.checkpoint import read_checkpoint
from handlers.config import ModelConfig
from handlers.errors import RequestError, Unprocessable
from handlers.formats.base import Model, Wanted
from handlers.meter import Meter
from handlers.registry import format_module, task_class
from handlers.requests import Request
from handlers.tasks.base import BaseTask

Outcome = Any | RequestError


class Engine:
    """A task and the model that does it."""

    def __init__(self, task: BaseTask[Any, Any], model: Model) -> None:
        self.task = task
        self.model = model

    @classmethod
    def load(
        cls,
        directory: Path,
        config: ModelConfig | None = None,
        device: torch.device | str = "cpu",
    ) -> Engine:
        """Load the checkpoint in a folder as a YAML says (default: the folder's model-config.yaml).

        Raises:
            ConfigError: when the YAML or the checkpoint is wrong.
        """
        config = config or ModelConfig.read(directory / "model-config.yaml")
        kind = task_class(config.handler.mode)
        task = kind(read_checkpoint(directory, config.handler), config.handler)
        wanted = Wanted(directory, kind.auto_class, kind.outputs, config, torch.device(device))
        return cls(task, format_module(config.handler.save_mode).load(wanted))

    def predict(self, requests: Sequence[Request], meter: Meter | None = None) -> list[Outcome]:
        """Answer every request; one that fails has its error in its place."""
        meter = meter or Meter()
        with meter.stage("parse"):
            parsed = [attempt(self.task.parse, request) for request in requests]
        queries = [query for query in parsed if not isinstance(query, RequestError)]
        answers = iter(self._answer(queries, meter))
        return [query if isinstance(query, RequestError) else next(answers) for query in parsed]

    def explain(self, requests: Sequence[Request], meter: Meter | None = None) -> list[Outcome]:
        """Explain every request; one that fails has its error in its place."""
        return [Unprocessable("This mode is not explained.") for _ in requests]

    def _answer(self, queries: Sequence[Any], meter: Meter) -> list[Outcome]:
        """Answer queries together, or each alone when that fails, so that one harms itself only."""
        together = attempt(self._answer_together, queries, meter)
        if not isinstance(together, RequestError):
            return together
        if len(queries) == 1:
            return [together]
        return list(chain.from_iterable(self._answer([query], meter) for query in queries))

    def _answer_together(self, queries: Sequence[Any], meter: Meter) -> list[Outcome]:
        if not queries:
            return []
        with meter.stage("encode"):
            encoded = self.task.encode(queries)
        rows = list(chain.from_iterable(map(_rows, encoded)))
        meter.count(rows=len(rows))
        with meter.stage("forward"):
            outputs = iter(self.task.run(self.model, rows, meter))
        with meter.stage("decode"):
            return [
                outcome
                if isinstance(outcome, RequestError)
                else attempt(self.task.decode, query, outcome, [next(outputs) for _ in outcome])
                for query, outcome in zip(queries, encoded, strict=True)
            ]


def _rows(outcome: Any) -> Sequence[Any]:
    return () if isinstance(outcome, RequestError) else outcome
