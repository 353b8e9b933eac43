"""The engine: loads a model from a folder and runs requests, without TorchServe and HTTP."""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch

from . import formats, tasks
from .batch import Batch, ExplanationSteps, NotExplained, PredictionSteps, Steps
from .checkpoints.checkpoint_files import require_folder
from .checkpoints.placement import prepare_device
from .checkpoints.temperature_scaling import FILE as CALIBRATION
from .checkpoints.trial_results import TrialKey, TrialRecord, recorded_results
from .checkpoints.unread_files import describe_unread_of
from .config.handler_section import MEASURED
from .config.model_config import CONFIG_FILE, ModelConfig
from .errors import (
    DeviceFailed,
    EngineFailed,
    InternalError,
    NotFinite,
    OutOfMemory,
    RequestError,
    WrongCheckpoint,
    WrongConfig,
    attempt,
)
from .explainers import targets
from .export.fidelity_report import FidelityReport
from .formats.auto import resolve_auto_dtype
from .model import Model
from .process.deadline import NO_DEADLINE, Deadline, TimeLimits, before
from .process.ranks import world_size
from .process.threads import LazyLoad, OneThread, Paced
from .tasks.base import BaseTask
from .tasks.bases.text import detokenize_request, tokenize_request
from .tasks.warmup import warm_up
from .telemetry.metrics import Meter
from .types.model_info import ModelInfo
from .types.parameters import json_schema, parameter_schemas
from .types.request import Request, RequestState, TokenizedText

Result = TypeVar("Result")
Outcome = Any | RequestError
# The sample is predicted after at most this number of failures within this number of seconds: where
# most requests fail, further predictions of it would take the time of the other requests.
HEALTH_CHECKS, HEALTH_SECONDS = 4, 10.0
# Errors that say something about the model, where the request is the sample of its mode.
FAILURES = (DeviceFailed, InternalError, NotFinite, OutOfMemory)

logger = logging.getLogger(__name__)


class BaseEngine(ABC):
    """A loaded model, as workers and hosts use it.

    Attributes:
        model: the model itself.
        limits: the time limits of one batch; a server sets the limits of predictions.
        max_result_bytes: the bytes of a response, which a server limits.
        trial_record: what the trials at load have found, for an archive with the same files.
        device_failed: whether the accelerator failed, or the model no longer answers its sample, so
            that this process has to end.
    """

    model: Any
    limits: TimeLimits
    max_result_bytes: float = math.inf
    trial_record: TrialRecord | None = None
    device_failed: bool = False

    @property
    @abstractmethod
    def failure(self) -> DeviceFailed | None:
        """Why no request is answered any more; None while they are. The process has to end then."""

    @property
    def load_metrics(self) -> Mapping[str, float]:
        """Numbers about the texts that run, of a model that runs them side by side."""
        return {}

    @abstractmethod
    def require_health(self) -> None:
        """Check that the model answers a request.

        Raises:
            WrongCheckpoint: it does not.
        """

    @abstractmethod
    def check_health(self) -> None:
        """Set `device_failed` if the model cannot answer any more, after a request failed."""

    @abstractmethod
    def describe(self, name: str = "model", version: str = "1.0") -> ModelInfo:
        """Return the description of this model."""

    @abstractmethod
    def predict(
        self,
        requests: Sequence[Request],
        meter: Meter | None = None,
        deadline: Deadline = NO_DEADLINE,
        http_request_ids: Sequence[int] | None = None,
    ) -> list[Outcome]:
        """Return the result of each request; one that fails has its error in its place."""

    @abstractmethod
    def explain(
        self,
        requests: Sequence[Request],
        meter: Meter | None = None,
        deadline: Deadline = NO_DEADLINE,
        http_request_ids: Sequence[int] | None = None,
    ) -> list[Outcome]:
        """Return the explanation of each request; one that fails has its error in its place."""

    def tokenize(
        self,
        requests: Sequence[Request],
        meter: Meter | None = None,
        deadline: Deadline = NO_DEADLINE,
        http_request_ids: Sequence[int] | None = None,
    ) -> list[TokenizedText | RequestError]:
        """Return the tokens of each text or chat; the model does not run.

        The arguments are those of :meth:`predict`; the parameters of a request are
        `add_special_tokens` and, for a chat, `add_generation_prompt`.
        """
        return self._attempt_each(tokenize_request, requests, meter, deadline)

    def detokenize(
        self,
        requests: Sequence[Request],
        meter: Meter | None = None,
        deadline: Deadline = NO_DEADLINE,
        http_request_ids: Sequence[int] | None = None,
    ) -> list[str | RequestError]:
        """Return the text of each request's token ids; the model does not run.

        The arguments are those of :meth:`predict`.
        """
        return self._attempt_each(detokenize_request, requests, meter, deadline)

    @abstractmethod
    def _attempt_each(
        self,
        function: Callable[[BaseTask[Any, Any], Request], Result],
        requests: Sequence[Request],
        meter: Meter | None,
        deadline: Deadline,
    ) -> list[Result | RequestError]:
        """Return what a function of the task makes of each request, or its error."""


class Engine(BaseEngine):
    """A task and a model that runs it."""

    model: Model

    def __init__(
        self,
        task: BaseTask[Any, Any],
        model: Model,
        limits: TimeLimits | None = None,
        *,
        dtype: str = "float32",
        agreement: FidelityReport | None = None,
        load_explained: Callable[[], Model] | None = None,
    ) -> None:
        self.task = task
        self.limits = limits or TimeLimits()
        self._check_sample = Paced(self._note_sample_failure, HEALTH_CHECKS, HEALTH_SECONDS)
        self._one_thread = OneThread()
        self._dtype, self._agreement = dtype, agreement
        self.model = model
        self._explained_model = LazyLoad(load_explained) if load_explained else None
        self.settings = task.settings
        explanation_target = targets.get(task.settings.mode)
        explains = task.settings.captum_explanation and task.explains
        self._explanation_target = (
            explanation_target(task) if explanation_target and explains else None
        )

    @classmethod
    def load(
        cls,
        directory: Path,
        config: ModelConfig | None = None,
        device: torch.device | str = "cpu",
        sums: Mapping[str, str] | None = None,
    ) -> Engine:
        """Load the checkpoint in a folder as a YAML says (default: the folder's model-config.yaml).

        Args:
            sums: the verified sum of each file of an archive, for the results of its trials.

        Raises:
            ConfigError: when the YAML or the checkpoint is wrong.
        """
        require_folder(directory)
        device = torch.device(device)
        prepare_device(device)
        config = config or ModelConfig.read(directory / CONFIG_FILE)
        config = formats.resolve(config, directory, device.type)
        formats.check_config(config)
        task = tasks.load(directory, config.handler)
        if left_out := describe_unread_of(directory, config.handler):
            logger.warning(left_out)
        _require_calibration(directory, config)
        report = FidelityReport.find(directory)
        spec = resolve_auto_dtype(task.model_spec(directory, config, device), report)
        model_format = formats.get(config.handler.save_mode)
        model = model_format.load(spec)
        dtype = model_format.served_dtype(spec)
        trial_key = TrialKey.here(sums or {}, config, device, dtype)
        recorded = recorded_results(directory, sums or {}, trial_key) if trial_key else None
        warm_up(task, model, config, recorded)
        results = model.trial_results if trial_key and not config.pt2.compile.enable else None
        if config.continuousBatching:
            model = model_format.run_continuously(spec, model)
        limits = TimeLimits(
            config.predict_seconds,
            config.shared_predict_seconds,
            config.explain_seconds,
            config.hang_seconds,
        )
        explained = model_format.explained_checkpoint(spec)
        load_explained = partial(formats.load_checkpoint, explained) if explained else None
        engine = cls(
            task, model, limits, dtype=dtype, agreement=report, load_explained=load_explained
        )
        if trial_key and results:
            engine.trial_record = TrialRecord(key=trial_key, results=results)
        return engine

    @property
    def load_metrics(self) -> Mapping[str, float]:
        """Numbers about the texts that run, of a model that runs them side by side."""
        return self.model.load_metrics

    def describe(self, name: str = "model", version: str = "1.0") -> ModelInfo:
        """Return the description of this model."""
        task, settings, target = self.task, self.settings, self._explanation_target
        return ModelInfo(
            name=name,
            version=version,
            mode=settings.mode,
            save_mode=settings.save_mode,
            dtype=self._dtype,
            agreement=self._agreement.as_json() if self._agreement else None,
            labels=list(task.labels),
            limits=task.limits,
            inputs=json_schema(task.description.wire.inputs),
            results=json_schema(task.description.wire.results),
            parameters=parameter_schemas(task.parameters, task.defaults),
            explanation=self._explanation_schemas(),
            task=task.description,
            settings=settings,
            architecture=task.checkpoint.architecture,
            prompts=list(task.prompts),
            categories=task.categories,
            adapters=task.adapters,
            generation=self.model.generation if task.description.generation.texts else None,
            legacy_explanation_keys=target.legacy_keys if target else (),
            explanation_views=target.views if target else None,
        )

    def predict(
        self,
        requests: Sequence[Request],
        meter: Meter | None = None,
        deadline: Deadline = NO_DEADLINE,
        http_request_ids: Sequence[int] | None = None,
    ) -> list[Outcome]:
        """Return the result of each request; one that fails has its error in its place.

        Args:
            meter: counts and measures; by default nobody reads it.
            http_request_ids: the number of the HTTP request that each request belongs to, whose
                rows are limited together; by default each is limited by itself.
        """
        meter = meter or Meter()
        # A model that runs requests concurrently has its own lock; others run in one thread.
        exclusive = nullcontext() if self.model.capabilities.runs_concurrently else self._one_thread
        steps = PredictionSteps(
            self.task, self.model, meter, deadline, max_result_bytes=self.max_result_bytes
        )
        batch = Batch.of(requests, http_request_ids, meter)
        with exclusive:
            if self.model.capabilities.has_adapters:
                self.model.release_adapters()
            _parse_and_encode(batch, steps)
            for chunk in batch.by_cost(RequestState.cost, steps.budget):
                chunk.together("forward", steps.run)
                chunk.each("decode", steps.decode)
        return self._checked(batch)

    def explain(
        self,
        requests: Sequence[Request],
        meter: Meter | None = None,
        deadline: Deadline = NO_DEADLINE,
        http_request_ids: Sequence[int] | None = None,
    ) -> list[Outcome]:
        """Return the explanation of each request; one that fails has its error in its place.

        The arguments are those of :meth:`predict`. Explanations have `explain_timeout` in addition
        to the time limit of the predictions of the same batch. Half of it may pass before the
        outputs to explain are computed.
        """
        meter, seconds = meter or Meter(), self.limits.explain
        exclusive = nullcontext() if self.model.capabilities.runs_concurrently else self._one_thread
        steps = ExplanationSteps(
            self.task,
            self.model,
            meter,
            deadline.extended(seconds / 2),
            "predict_timeout and half of explain_timeout",
            target=self._explanation_target,
        )
        batch = Batch.of(requests, http_request_ids, meter)
        with exclusive:
            if self.model.capabilities.has_adapters:
                self.model.release_adapters()
            _parse_and_encode(batch, steps)
            for chunk in batch.by_cost(RequestState.cost, steps.budget):
                chunk.together("forward", steps.run)
            with meter.stage("explain"):
                self._explain(batch.running, deadline.extended(seconds).at_most(seconds))
        return self._checked(batch)

    def require_health(self) -> None:
        """Check that the model answers the sample of its mode; `health_check: false` skips it.

        Raises:
            WrongCheckpoint: it does not.
        """
        if self.settings.health_check and (error := self._sample_failure()):
            raise WrongCheckpoint(
                f"the model of mode {self.settings.mode}",
                f"it cannot answer the sample of its mode ({error})",
                "correct the checkpoint or its dtype; health_check: false serves it all the same",
            )

    @property
    def failure(self) -> DeviceFailed | None:
        """Why no request is answered any more; None while they are. The process has to end then."""
        if self.model.has_failed:
            self.device_failed = True
            return EngineFailed()
        return DeviceFailed() if self.device_failed else None

    def check_health(self) -> None:
        """Predict the sample after a request failed; set `device_failed` if that fails, too.

        Not more often than a few times in some seconds, and not where it has failed before.
        Not for a model whose processes run the same steps: they could differ in what failed.
        """
        if self.settings.health_check and world_size() == 1 and not self.device_failed:
            self._check_sample()

    def _note_sample_failure(self) -> None:
        if self._sample_failure():
            self.device_failed = True

    def _sample_failure(self) -> RequestError | None:
        deadline = Deadline(self.limits.predict)
        (outcome,) = self.predict(
            [Request(**self.task.description.wire.example)], deadline=deadline
        )
        return outcome if isinstance(outcome, FAILURES) else None

    def _attempt_each(
        self,
        function: Callable[[BaseTask[Any, Any], Request], Result],
        requests: Sequence[Request],
        meter: Meter | None,
        deadline: Deadline,
    ) -> list[Result | RequestError]:
        in_time = before(deadline, partial(function, self.task))
        with (meter or Meter()).stage("encode"):
            return [attempt(in_time, request) for request in requests]

    def _checked(self, batch: Batch) -> list[Outcome]:
        """Return the result or error of each request, and note whether the accelerator failed."""
        outcomes = []
        for state in batch.states:
            if isinstance(state.error, DeviceFailed):
                self.device_failed = True
            outcomes.append(state.result if state.error is None else state.error)
        return outcomes

    @property
    def _has_gradients(self) -> bool:
        return self._explained_model is not None or self.model.has_gradients

    def _explanation_schemas(self) -> dict[str, Any]:
        if self._explanation_target is None:
            return {}
        return self._explanation_target.parameter_schemas(gradients=self._has_gradients)

    def _explain(self, states: Sequence[RequestState], deadline: Deadline) -> None:
        """Set the explanation of requests, or their error."""
        if not states:
            return
        explained = attempt(self._explain_in_time, states, deadline)
        if isinstance(explained, RequestError):
            explained = [explained] * len(states)
        for state, outcome in zip(states, explained, strict=True):
            if isinstance(outcome, RequestError):
                state.error = outcome
            else:
                state.result = outcome

    def _explain_in_time(self, states: Sequence[RequestState], deadline: Deadline) -> list[Outcome]:
        lazy = self._explained_model
        model = lazy.get(deadline) if lazy else self.model
        explain = partial(self._explain_by_adapter, model, states, deadline)
        return model.run_exclusively(explain, deadline)

    def _explain_by_adapter(
        self, model: Model, states: Sequence[RequestState], deadline: Deadline
    ) -> list[Outcome]:
        """Explain requests with the same adapter together."""
        if self._explanation_target is None:
            raise NotExplained
        outcomes: dict[RequestState, Outcome] = {}
        for adapter, group in self._by_adapter(states).items():
            with self._one_thread, model.with_adapters([adapter]):
                explained = self._explanation_target.explain(group, model, deadline)
            outcomes.update(zip(group, explained, strict=True))
        return [outcomes[state] for state in states]

    def _by_adapter(
        self, states: Sequence[RequestState]
    ) -> Mapping[str | None, list[RequestState]]:
        groups = defaultdict[str | None, list[RequestState]](list)
        for state in states:
            groups[self.task.adapter_of(state.input)].append(state)
        return groups


def _parse_and_encode(batch: Batch, steps: Steps) -> None:
    """Parse and encode requests, cheap ones first."""
    for part in batch.by_cost(steps.reading_cost, steps.reading_budget):
        part.each("parse", steps.parse)
        for chunk in part.by_cost(steps.encoding_cost, steps.reading_budget):
            chunk.together("encode", steps.encode)
    if steps.exceeded:
        steps.refuse_exceeded(batch)


def _require_calibration(directory: Path, config: ModelConfig) -> None:
    """Check that a temperature that the YAML takes from packing was measured.

    Raises:
        WrongConfig: it was not.
    """
    if config.handler.temperature == MEASURED and not (directory / CALIBRATION).is_file():
        raise WrongConfig(
            "handler.temperature",
            f"is measured, and {CALIBRATION} is missing",
            "pack the model with handler.labelled, or set a number",
        )
