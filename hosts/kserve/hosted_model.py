"""A model of KServe's SDK that is an archive: its requests, and whether it is healthy."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from kserve.metrics import EXPLAIN_HIST_TIME, PREDICT_HIST_TIME, get_labels
from kserve.model import BaseKServeModel
from prometheus_client import Histogram

from handlers.errors import Overloaded
from handlers.http.limits import BodyLimits
from hosts.archives import Archive
from hosts.batch_metrics import LABELS, BatchMetrics
from hosts.batcher import Batcher
from hosts.model import ArchiveModel
from hosts.served_model import Part, ServedModel

QUEUE_TIME = Histogram("request_queue_seconds", "time until the batch of a request begins", LABELS)

logger = logging.getLogger(__name__)


class HostedModel(BaseKServeModel):
    """A loaded archive in the SDK's registry of models.

    Raises:
        ConfigError: the archive does not load, or is for TorchServe only.
    """

    def __init__(self, archive: Archive, name: str, limits: BodyLimits) -> None:
        super().__init__(name)
        self._metrics = ModelMetrics(name)
        report = self._metrics.report_batch
        model = ArchiveModel(archive.folder, name, archive.version, limits, report=report)
        info = model.engine.describe(name, archive.version)
        self.adapters: frozenset[str] = frozenset(info.adapters)
        self.served = ServedModel(model, name, archive.version)
        self._batcher = Batcher(
            self.served.answer_batch,
            self.served.batch_size,
            self.served.batch_seconds,
            self._metrics.observe_queue,
        )
        self._open = 0
        self._has_failed = False
        self.ready = True

    async def healthy(self) -> bool:
        """Return whether the model answers; the SDK asks for its routes of readiness."""
        return self.is_healthy

    @property
    def is_healthy(self) -> bool:
        """Whether the model answers. One that does not needs a new process."""
        try:
            self.served.check_health()
        except RuntimeError as error:
            if not self._has_failed:
                self._has_failed = True
                logger.error("Model %s failed. %s", self.name, error)
            return False
        return True

    def require_space(self) -> None:
        """Check that the queue takes a further request.

        Raises:
            Overloaded: it is full.
        """
        if self._open >= self.served.max_open:
            raise Overloaded("The queue of this model is full; send the request again.")

    async def answer(
        self, row: Mapping[str, Any], headers: Mapping[str, Any], version: str
    ) -> AsyncGenerator[Part, None]:
        """Yield the parts of a response; arguments as of `ServedModel.answer`.

        Raises:
            Overloaded: the queue is full.
        """
        self.require_space()
        self._open += 1
        start = time.monotonic()
        try:
            parts = self.served.answer(row, headers, version, self._batcher.answer)
            async with aclosing(parts):
                async for part in parts:
                    yield part
        finally:
            self._open -= 1
            explains = headers.get("explain") == "True"
            self._metrics.observe_request(time.monotonic() - start, explains=explains)


class ModelMetrics(BatchMetrics):
    """Counts and times of a model."""

    def __init__(self, model: str) -> None:
        super().__init__(model)
        self._labels = get_labels(model)

    def observe_queue(self, seconds: float) -> None:
        """Report how long a request waited."""
        QUEUE_TIME.labels(**self._labels).observe(seconds)

    def observe_request(self, seconds: float, *, explains: bool) -> None:
        """Report how long a request took in all, as the SDK does for its own models."""
        histogram = EXPLAIN_HIST_TIME if explains else PREDICT_HIST_TIME
        histogram.labels(**self._labels).observe(seconds)
