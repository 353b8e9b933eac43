"""From a folder to a served model, and from requests to answers. No TorchServe, no HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from handlers.attempts import attempt
from handlers.cases import Case
from handlers.checkpoint import read_checkpoint
from handlers.config import ModelConfig
from handlers.deadline import Deadline
from handlers.describing import describe
from handlers.description import Description
from handlers.errors import RequestError, Unprocessable
from handlers.explainers.base import Subject
from handlers.explanation_parameters import ExplanationParameters, split
from handlers.formats.base import Model, Wanted
from handlers.heads import check_head
from handlers.meter import Meter
from handlers.registry import account_class, format_module, task_class
from handlers.requests import Request
from handlers.tasks.base import BaseTask
from handlers.warming import make_ready

Outcome = Any | RequestError


class Engine:
    """A task and the model that does it."""

    def __init__(
        self, task: BaseTask[Any, Any], model: Model, explain_seconds: float = 60.0
    ) -> None:
        self.task = task
        self._explain_seconds = explain_seconds
        self.model = model
        self.settings = task.settings
        account = account_class(task.settings.mode)
        explains = task.settings.captum_explanation
        self._account = account(task) if account and explains else None

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
        checkpoint = read_checkpoint(directory, config.handler)
        check_head(checkpoint.config, config.handler, kind.auto_class)
        task = kind(checkpoint, config.handler)
        wanted = Wanted(
            directory, checkpoint, kind.auto_class, kind.outputs, config, torch.device(device)
        )
        model = format_module(config.handler.save_mode).load(wanted)
        make_ready(task, model, config)
        return cls(task, model, config.explain_seconds)

    def describe(self, name: str = "model", version: str = "1.0") -> Description:
        """Return what this model tells about itself, under the name that it is served by."""
        gradients = self.model.embeddings is not None
        return describe(self.task, name, version, self._account, gradients=gradients)

    def predict(self, requests: Sequence[Request], meter: Meter | None = None) -> list[Outcome]:
        """Answer every request; one that fails has its error in its place."""
        meter = meter or Meter()
        with meter.stage("parse"):
            asked = [attempt(self._ask, request) for request in requests]
        worked = self._work(asked, meter)
        with meter.stage("decode"):
            return [
                case if isinstance(case, RequestError) else attempt(self._decode, case)
                for case in worked
            ]

    def explain(self, requests: Sequence[Request], meter: Meter | None = None) -> list[Outcome]:
        """Explain every request; one that fails has its error in its place."""
        meter = meter or Meter()
        with meter.stage("parse"):
            asked = [attempt(self._ask_why, request) for request in requests]
        worked = self._work(asked, meter)
        cases = [case for case in worked if not isinstance(case, RequestError)]
        with meter.stage("explain"):
            explained = iter(self._explained(cases))
        return [case if isinstance(case, RequestError) else next(explained) for case in worked]

    def _ask(self, request: Request) -> Case:
        return Case(self.task.parse(request), listener=request.listener)

    def _ask_why(self, request: Request) -> Case:
        if self._account is None:
            raise Unprocessable(
                "This model is not explained; its YAML has captum_explanation: false, "
                "or its mode has no explanation."
            )
        ours, own = split(request.parameters)
        own = {**self._account.usual_parameters, **self.task.defaults, **own}
        query = self.task.parse(replace(request, parameters=own))
        return Case(query, ExplanationParameters.of_request({}, ours))

    def _work(self, asked: Sequence[Case | RequestError], meter: Meter) -> list[Outcome]:
        """Encode and run what could be parsed, together."""
        cases = [case for case in asked if isinstance(case, Case)]
        worked = iter(self._run(cases, meter))
        return [next(worked) if isinstance(case, Case) else case for case in asked]

    def _run(self, cases: Sequence[Case], meter: Meter) -> list[Case | RequestError]:
        """Run cases together, or each alone when that fails, so that one harms itself only."""
        together = attempt(self._run_together, cases, meter)
        if not isinstance(together, RequestError):
            return together
        if len(cases) == 1:
            return [together]
        return [
            outcome
            for case in cases
            for outcome in ([together] if case.begun else self._run([case], meter))
        ]

    def _run_together(self, cases: Sequence[Case], meter: Meter) -> list[Case | RequestError]:
        if not cases:
            return []
        with meter.stage("encode"):
            encoded = self.task.encode([case.query for case in cases])
        rows = [row for found in encoded if not isinstance(found, RequestError) for row in found]
        meter.count(rows=len(rows))
        with meter.stage("forward"):
            outputs = iter(self.task.run(self.model, rows, meter))
        return [
            found
            if isinstance(found, RequestError)
            else replace(case, rows=found, outputs=[next(outputs) for _ in found])
            for case, found in zip(cases, encoded, strict=True)
        ]

    def _decode(self, case: Case) -> Any:
        return self.task.decode(case.query, case.rows, case.outputs)

    def _explained(self, cases: Sequence[Case]) -> list[Outcome]:
        """Explain cases; should that fail as a whole, predictions of the same batch do not."""
        together = attempt(self._explain, cases)
        return [together] * len(cases) if isinstance(together, RequestError) else together

    def _explain(self, cases: Sequence[Case]) -> list[Outcome]:
        if not cases or self._account is None:
            return []
        subject = Subject(
            forward=self.model.trace,
            embeddings=self.model.embeddings,
            padding=self.task.padding,
            nothing=self.task.checkpoint.nothing,
            budget=self.task.budget,
            deadline=Deadline(self._explain_seconds),
        )
        return self._account.explain(cases, subject)
