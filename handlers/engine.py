"""The engine: loads a model from a folder and runs requests, without TorchServe and HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from handlers import formats, tasks
from handlers.batching.rows import RowOutcome, require_outputs
from handlers.batching.tokenization import Window
from handlers.checkpoints.checkpoint import read_checkpoint
from handlers.checkpoints.heads import check_head
from handlers.checkpoints.model_spec import ModelSpec
from handlers.config.model_config import CONFIG_FILE, ModelConfig
from handlers.errors import RequestError, Unprocessable, attempt
from handlers.explainers import explanation_schemas, targets
from handlers.explainers.base import ExplainedModel
from handlers.runtime.deadline import Deadline
from handlers.runtime.jobs import Job
from handlers.runtime.model import Model
from handlers.schemas.explanation_parameters import ExplanationParameters, split_parameters
from handlers.schemas.json_schema import json_schema, parameter_schemas
from handlers.schemas.model_info import Limits, ModelInfo
from handlers.schemas.request import Request
from handlers.tasks._warmup import warm_up
from handlers.tasks.base import BaseTask
from handlers.telemetry.meter import Meter

Outcome = Any | RequestError


class Engine:
    """A task and a model that runs it."""

    def __init__(
        self, task: BaseTask[Any, Any], model: Model, explain_seconds: float = 60.0
    ) -> None:
        self.task = task
        self._explain_seconds = explain_seconds
        self.model = model
        self.settings = task.settings
        explanation_target = targets.get(task.settings.mode)
        explains = task.settings.captum_explanation
        self._explanation_target = (
            explanation_target(task) if explanation_target and explains else None
        )

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
        config = config or ModelConfig.read(directory / CONFIG_FILE)
        formats.check_config(config)
        kind = tasks.get(config.handler.mode)
        checkpoint = read_checkpoint(directory, config.handler)
        check_head(checkpoint.config, config.handler, kind.auto_class)
        task = kind(checkpoint, config.handler)
        spec = ModelSpec(
            directory, checkpoint, kind.auto_class, kind.outputs, config, torch.device(device)
        )
        model = formats.get(config.handler.save_mode).load(spec)
        warm_up(task, model, config)
        return cls(task, model, config.explain_seconds)

    def describe(self, name: str = "model", version: str = "1.0") -> ModelInfo:
        """Return the description of this model.

        Args:
            name: the name under which it is served.
            version: the archive's version.
        """
        task, settings, target = self.task, self.settings, self._explanation_target
        return ModelInfo(
            name=name,
            version=version,
            mode=settings.mode,
            save_mode=settings.save_mode,
            dtype=formats.get(settings.save_mode).computes_in(settings.dtype),
            labels=list(task.labels),
            limits=Limits(task.max_tokens, settings.max_rows, task.max_characters, task.truncation),
            inputs=json_schema(task.inputs),
            results=json_schema(task.results),
            parameters=parameter_schemas(task.parameters, task.defaults),
            explanation=self._explanation_schemas(),
            sample=task.sample,
            settings=settings,
            architecture=task.checkpoint.architecture,
            input_columns=task.input_columns,
            result_columns=task.result_columns,
            generates=task.generates,
            nests_single_result=task.nests_single_result,
            legacy_response=task.legacy_response,
            legacy_explanation_keys=target.legacy_keys if target else (),
            explanation_views=target.views if target else None,
        )

    def predict(self, requests: Sequence[Request], meter: Meter | None = None) -> list[Outcome]:
        """Return the result of each request; one that fails has its error in its place."""
        meter = meter or Meter()
        with meter.stage("parse"):
            parsed = [attempt(self._parse, request) for request in requests]
        finished = self._encode_and_run(parsed, meter)
        with meter.stage("decode"):
            return [
                job if isinstance(job, RequestError) else attempt(self._decode, job)
                for job in finished
            ]

    def explain(self, requests: Sequence[Request], meter: Meter | None = None) -> list[Outcome]:
        """Return the explanation of each request; one that fails has its error in its place."""
        meter = meter or Meter()
        with meter.stage("parse"):
            parsed = [attempt(self._parse_explanation, request) for request in requests]
        finished = self._encode_and_run(parsed, meter)
        jobs = [job for job in finished if not isinstance(job, RequestError)]
        with meter.stage("explain"):
            explained = iter(self._explained(jobs))
        return [job if isinstance(job, RequestError) else next(explained) for job in finished]

    def _explanation_schemas(self) -> dict[str, Any]:
        if self._explanation_target is None:
            return {}
        gradients = self.model.embeddings is not None
        return explanation_schemas(self._explanation_target.default_method, gradients=gradients)

    def _parse(self, request: Request) -> Job:
        return Job(self.task.parse(request), stream=request.stream)

    def _parse_explanation(self, request: Request) -> Job:
        if self._explanation_target is None:
            raise Unprocessable(
                "This model is not explained; its YAML has captum_explanation: false, "
                "or its mode has no explanation."
            )
        explanation, own = split_parameters(request.parameters)
        own = {**self._explanation_target.default_parameters, **self.task.defaults, **own}
        query = self.task.parse(replace(request, parameters=own))
        return Job(query, ExplanationParameters.of_request({}, explanation))

    def _encode_and_run(self, parsed: Sequence[Job | RequestError], meter: Meter) -> list[Outcome]:
        """Encode and run together what could be parsed."""
        jobs = [job for job in parsed if isinstance(job, Job)]
        finished = iter(self._run_isolated(jobs, meter))
        return [next(finished) if isinstance(job, Job) else job for job in parsed]

    def _run_isolated(self, jobs: Sequence[Job], meter: Meter) -> list[Job | RequestError]:
        """Run jobs together, or each alone when that fails, so that an error stays in its job."""
        together = attempt(self._run_together, jobs, meter)
        if not isinstance(together, RequestError):
            return together
        if len(jobs) == 1:
            return [together]
        return [
            outcome
            for job in jobs
            for outcome in (
                [together] if job.streaming_started else self._run_isolated([job], meter)
            )
        ]

    def _run_together(self, jobs: Sequence[Job], meter: Meter) -> list[Job | RequestError]:
        if not jobs:
            return []
        with meter.stage("encode"):
            encoded = self.task.encode([job.query for job in jobs])
        rows = [row for found in encoded if not isinstance(found, RequestError) for row in found]
        meter.count(rows=len(rows))
        with meter.stage("forward"):
            outputs = iter(self.task.run(self.model, rows, meter))
        return [
            found
            if isinstance(found, RequestError)
            else attempt(_with_outputs, job, found, [next(outputs) for _ in found])
            for job, found in zip(jobs, encoded, strict=True)
        ]

    def _decode(self, job: Job) -> Any:
        return self.task.decode(job.query, job.rows, job.outputs)

    def _explained(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Explain jobs; an error of all does not affect predictions of the same batch."""
        together = attempt(self._explain, jobs)
        return [together] * len(jobs) if isinstance(together, RequestError) else together

    def _explain(self, jobs: Sequence[Job]) -> list[Outcome]:
        if not jobs or self._explanation_target is None:
            return []
        model = ExplainedModel(
            forward=self.model.forward_with_gradients,
            embeddings=self.model.embeddings,
            padding=self.task.padding,
            baseline_token_id=self.task.checkpoint.baseline_token_id,
            budget=self.task.budget,
            deadline=Deadline(self._explain_seconds),
        )
        return self._explanation_target.explain(jobs, model)


def _with_outputs(job: Job, rows: Sequence[Window], outcomes: Sequence[RowOutcome]) -> Job:
    return replace(job, rows=rows, outputs=require_outputs(outcomes))
