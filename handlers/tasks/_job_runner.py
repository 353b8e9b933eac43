"""Runs the jobs of a batch: in one wave, or in several where there is much to compute.

Short texts are encoded first and cheap jobs run first, so that they are finished when the deadline
passes while an expensive one is computed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from handlers.batching.rows import RowOutcome, check_numbers, require_outputs
from handlers.errors import (
    BadRequest,
    NotFinite,
    OutOfTime,
    RequestError,
    RequestTooLarge,
    attempt,
    attempt_all,
)
from handlers.runtime.deadline import Deadline, before
from handlers.runtime.jobs import Job
from handlers.runtime.model import Model
from handlers.runtime.ranks import agree
from handlers.runtime.waves import text_size, waves
from handlers.schemas.request import Request
from handlers.tasks.base import BaseTask
from handlers.telemetry.meter import Meter

JobOutcome = Job | RequestError
# A request, and the number of the HTTP request that it belongs to.
Owned = tuple[Request, int]
# The deadline is checked before each of these; an ordinary batch has less and stays together.
WAVE_CHARACTERS = 1_000_000
WAVE_TEXTS = 64
WAVE_FORWARDS = 8
# The share of the time limit that results may take after it; the worker counts as hanging later.
FINISHING_SHARE = 0.05
# A number has four bytes as float32, and hardly ever fewer in JSON.
NUMBER_BYTES = 4


@dataclass(frozen=True)
class JobRunner:
    """Parses, encodes and runs requests; each one that fails has its error in its place.

    Attributes:
        task: the task.
        model: the model.
        meter: counts rows and measures the stages.
        deadline: the time limit; jobs that it leaves no time for have an error.
        limit_name: the keys of the YAML that set the time limit, for errors.
        max_result_bytes: the limit of the results of one HTTP request; those that are certain to
            have more are not computed.
    """

    task: BaseTask[Any, Any]
    model: Model
    meter: Meter
    deadline: Deadline
    limit_name: str = "predict_timeout"
    max_result_bytes: float = math.inf

    def run(
        self,
        requests: Sequence[Request],
        parse: Callable[[Request], Job],
        owners: Sequence[int],
        finish: Callable[[Job], Any],
    ) -> list[Any]:
        """Return what becomes of the job of each request when it has its rows and outputs.

        Args:
            requests: the requests.
            parse: returns the job of a request.
            owners: the number of the HTTP request that each request belongs to.
            finish: takes a job with its outputs, of which a wave may have gigabytes, before the
                next wave runs.
        """
        # Reading texts that are too large to be computed leaves time to compute the others.
        reader = _Reader(self, parse, self.deadline.share(2))
        smallest = WAVE_CHARACTERS // WAVE_TEXTS
        read = _in_waves(
            [max(smallest, text_size(request.inputs)) for request in requests],
            WAVE_CHARACTERS,
            owners,
            lambda wave: reader.read([(requests[index], owners[index]) for index in wave]),
        )
        jobs = reader.without_too_many_rows(read)
        return _in_waves(
            [
                0 if isinstance(job, RequestError) else sum(row.cost for row in job.rows)
                for job in jobs
            ],
            WAVE_FORWARDS * self.task.forward_budget(self.model),
            owners,
            lambda wave: self._finish(self._compute([jobs[index] for index in wave]), finish),
        )

    def prepare(
        self, requests: Sequence[Owned], parse: Callable[[Owned], Job], deadline: Deadline
    ) -> list[JobOutcome]:
        """Parse and encode requests, if there is time."""
        if agree(deadline.passed):
            return [self._out_of_time("text was read")] * len(requests)
        with self.meter.stage("parse"):
            parsed = [attempt(before(deadline, parse), owned) for owned in requests]
        return _in_waves(
            [
                0 if isinstance(job, RequestError) else self.task.encoding_cost(job.query)
                for job in parsed
            ],
            WAVE_CHARACTERS,
            [owner for _, owner in requests],
            lambda wave: self._encode_in_time([parsed[index] for index in wave], deadline),
        )

    def _encode_in_time(self, parsed: Sequence[JobOutcome], deadline: Deadline) -> list[JobOutcome]:
        """Encode the jobs among jobs and errors, if there is time."""
        if agree(deadline.passed):
            return _each(parsed, lambda jobs: [self._out_of_time("text was read")] * len(jobs))
        return _each(parsed, self._encode)

    def _encode(self, jobs: Sequence[Job]) -> list[JobOutcome]:
        with self.meter.stage("encode"):
            return attempt_all(self._encode_together, jobs)

    def _encode_together(self, jobs: Sequence[Job]) -> list[JobOutcome]:
        encoded = self.task.encode([job.query for job in jobs])
        return [
            found if isinstance(found, RequestError) else attempt(_with_rows, job, found)
            for job, found in zip(jobs, encoded, strict=True)
        ]

    def _compute(self, jobs: Sequence[JobOutcome]) -> list[JobOutcome]:
        """Run the jobs among jobs and errors."""

        def run(jobs: Sequence[Job]) -> list[JobOutcome]:
            return attempt_all(self._run_together, jobs, lambda job: not job.streaming_started)

        return _each(jobs, run)

    def _finish(self, jobs: Sequence[JobOutcome], finish: Callable[[Job], Any]) -> list[Any]:
        """Return what becomes of the jobs among jobs and errors, if there is time.

        Masks of a large image take seconds. Jobs that were computed while the deadline passed have
        a little more time.
        """
        overrun = max(0.0, self.deadline.age - self.deadline.seconds)
        late = self.deadline.extended(overrun + FINISHING_SHARE * self.deadline.seconds)

        def finish_in_time(job: Job) -> Any:
            if late.passed:
                raise self._out_of_time("result was written")
            return finish(job)

        with self.meter.stage("decode"):
            return [
                job if isinstance(job, RequestError) else attempt(finish_in_time, job)
                for job in jobs
            ]

    def _run_together(self, jobs: Sequence[Job]) -> list[JobOutcome]:
        self.meter.count(rows=sum(len(job.rows) for job in jobs))
        outcomes = self._run_rows(jobs)
        if len(jobs) == 1 or not self.model.packs:
            return outcomes
        # In a packed row, numbers that are not finite reach the texts beside it.
        return [
            self._run_rows([job])[0] if isinstance(outcome, NotFinite) else outcome
            for job, outcome in zip(jobs, outcomes, strict=True)
        ]

    def _run_rows(self, jobs: Sequence[Job]) -> list[JobOutcome]:
        rows = [row for job in jobs for row in job.rows]
        with self.meter.stage("forward"):
            outcomes = iter(self.task.run(self.model, rows, self.meter, self.deadline))
        return [
            attempt(self._with_outputs, job, [next(outcomes) for _ in job.rows]) for job in jobs
        ]

    def _with_outputs(self, job: Job, outcomes: Sequence[RowOutcome]) -> Job:
        try:
            outputs = require_outputs(outcomes)
            check_numbers(outputs)
            return replace(job, outputs=outputs)
        except OutOfTime:
            cost, unit = sum(row.cost for row in job.rows), self.task.cost_unit
            raise self._out_of_time(
                f"{len(job.rows):,} rows with {cost:,} {unit} were computed"
            ) from None

    def _out_of_time(self, what: str) -> OutOfTime:
        fewer = self.task.smaller_requests
        if self.task.generates:
            fewer += ", or a smaller max_new_tokens"
        return OutOfTime(
            f"The time limit of the batch, {self.deadline.seconds:g} s ({self.limit_name}), passed"
            f" before this request's {what}; send it again, or send {fewer}."
        )


def _with_rows(job: Job, rows: Sequence[Any]) -> Job:
    """Return a job with its rows.

    Raises:
        BadRequest: one has no tokens; in a packed row it would have the outputs of a neighbour.
    """
    if not all(row.cost for row in rows):
        raise BadRequest("A text of this request has no tokens for this model; send another one.")
    return replace(job, rows=rows)


class _Reader:
    """Reads requests until their HTTP request has too many rows.

    Args:
        runner: parses and encodes requests.
        parse: returns the job of a request.
        deadline: the time limit of reading.
    """

    def __init__(
        self, runner: JobRunner, parse: Callable[[Request], Job], deadline: Deadline
    ) -> None:
        self._runner, self._parse, self._deadline = runner, parse, deadline
        self._limit = runner.task.settings.request_rows
        # Those that are certain before they are encoded, and those that are encoded.
        self._certain, self._rows = Counter[int](), Counter[int]()
        self._numbers = Counter[int]()

    def read(self, owned: Sequence[Owned]) -> list[JobOutcome]:
        """Return the job of each request, which belongs to an owner."""
        full = [self._error(owner) for _, owner in owned]
        requests = [each for each, error in zip(owned, full, strict=True) if not error]
        jobs = iter(self._runner.prepare(requests, self._parse_owned, self._deadline))
        return [error or self._count(next(jobs)) for error in full]

    def without_too_many_rows(self, jobs: Sequence[JobOutcome]) -> list[JobOutcome]:
        """Return the jobs, with an error for each of an owner that has too many rows."""
        return [(self._error(job.owner) if isinstance(job, Job) else None) or job for job in jobs]

    def _parse_owned(self, owned: Owned) -> Job:
        """Return the job of a request, if its HTTP request has not too many rows with it."""
        request, owner = owned
        job = replace(self._parse(request), owner=owner)
        self._certain[owner] += self._runner.task.least_rows(job.query)
        if error := self._error(owner):
            raise error
        return job

    def _count(self, job: JobOutcome) -> JobOutcome:
        if isinstance(job, Job):
            self._rows[job.owner] += sum(row.sequences for row in job.rows)
            self._numbers[job.owner] += self._runner.task.result_numbers(job.query, job.rows)
        return job

    def _error(self, owner: int) -> RequestTooLarge | None:
        rows = max(self._certain[owner], self._rows[owner])
        numbers, limit = self._numbers[owner], self._runner.max_result_bytes
        if numbers * NUMBER_BYTES > limit:
            return RequestTooLarge(
                f"The results of this request have at least {numbers:,} numbers, too many for the"
                f" server's max_response_size of {limit:,}; send"
                f" {self._runner.task.smaller_results}."
            )
        if rows <= self._limit:
            return None
        return RequestTooLarge(
            f"The texts of this request make at least {rows:,} rows, counting each"
            " window of a long text and each sequence of a prompt, and this model takes"
            f" {self._limit:,} a request; send them in parts, or ask for less."
        )


def _in_waves(
    costs: Sequence[int],
    limit: int,
    owners: Sequence[int],
    function: Callable[[Sequence[int]], Sequence[Any]],
) -> list[Any]:
    outcomes: dict[int, Any] = {}
    for wave in waves(costs, limit, owners):
        outcomes |= zip(wave, function(wave), strict=True)
    return [outcomes[index] for index in range(len(costs))]


def _each(
    jobs: Sequence[JobOutcome], function: Callable[[Sequence[Job]], Sequence[JobOutcome]]
) -> list[JobOutcome]:
    """Return what a function makes of the jobs, with the errors among them in their places."""
    outcomes = iter(function([job for job in jobs if isinstance(job, Job)]))
    return [next(outcomes) if isinstance(job, Job) else job for job in jobs]
