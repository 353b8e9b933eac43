"""The requests of one call of the engine, and the steps that they go through together."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .batching.padding import chunk_by_cost, text_size
from .batching.rows import ADAPTER_IDS, Outputs, RowOutcome, check_numbers
from .errors import (
    BadRequest,
    DeadlineExceeded,
    NotFinite,
    RequestError,
    RequestTooLarge,
    Unprocessable,
    as_request_error,
    attempt,
    attempt_parts,
)
from .explainers.targets.base import BaseExplanationTarget
from .model import Model
from .process.deadline import Deadline
from .tasks.base import BaseTask
from .telemetry.metrics import Meter
from .types.parameters import split_parameters
from .types.request import Request, RequestState

# A batch is split at these sizes, and the deadline is checked before each part. Ordinary batches
# are smaller and are not split.
CHUNK_CHARACTERS = 1_000_000
CHUNK_TEXTS = 64
CHUNK_FORWARDS = 8
# Results may be written after the deadline for this share of the time limit. The watchdog ends the
# worker only later.
FINISHING_SHARE = 0.05
# A number has four bytes as float32, and hardly ever fewer in JSON.
NUMBER_BYTES = 4


@dataclass(frozen=True)
class Batch:
    """The states of requests. A step skips those that have failed, and a failure is isolated."""

    states: Sequence[RequestState]
    meter: Meter

    @classmethod
    def of(
        cls, requests: Sequence[Request], http_request_ids: Sequence[int] | None, meter: Meter
    ) -> Batch:
        """Return the batch of requests.

        Args:
            http_request_ids: the number of the HTTP request of each; by default all differ.
        """
        ids = range(len(requests)) if http_request_ids is None else http_request_ids
        states = []
        for request, number in zip(requests, ids, strict=True):
            states.append(RequestState(request, number))
        return cls(states, meter)

    @property
    def running(self) -> list[RequestState]:
        """The states of the requests that have not failed."""
        running = []
        for state in self.states:
            if state.error is None:
                running.append(state)
        return running

    def each(self, stage: str, step: Callable[[RequestState], None]) -> None:
        """Take a step with each request; what it raises is the error of its request."""
        with self.meter.stage(stage):
            for state in self.states:
                if state.error is None:
                    state.error = attempt(step, state)

    def together(
        self, stage: str, step: Callable[[Sequence[RequestState]], Sequence[RequestError | None]]
    ) -> None:
        """Take a step with all requests at once, or with fewer of them where that fails.

        Args:
            step: returns the error of each request, or None.
        """
        running = self.running
        with self.meter.stage(stage):
            try:
                errors, failure = step(running), None
            except BaseException as raised:  # noqa: BLE001 - a panic in tokenizers is one
                errors, failure = (), as_request_error(raised)
            if failure:
                errors = attempt_parts(failure, step, running, RequestState.may_run_again)
        for state, error in zip(running, errors, strict=True):
            state.error = error

    def by_cost(self, cost: Callable[[RequestState], int], limit: int) -> Iterator[Batch]:
        """Yield batches of bounded cost, the cheapest HTTP requests first.

        Args:
            limit: the maximum cost of a batch; a more expensive request forms one alone.
        """
        running = self.running
        if len(running) == 1:
            yield Batch(running, self.meter)
            return
        costs = [cost(state) for state in running]
        for chunk in chunk_by_cost(costs, limit, [state.http_request_id for state in running]):
            yield Batch([running[index] for index in chunk], self.meter)


class Steps(ABC):
    """The steps of the requests of one batch; each changes the state of its requests.

    Args:
        deadline: the time limit; requests that it leaves no time for have an error.
        limit_keys: the keys of the YAML that set the time limit, for errors.
        max_result_bytes: the limit of the results of one HTTP request; a request whose results must
            exceed it is refused before the model runs.
    """

    def __init__(
        self,
        task: BaseTask[Any, Any],
        model: Model,
        meter: Meter,
        deadline: Deadline,
        limit_keys: str = "predict_timeout",
        max_result_bytes: float = math.inf,
    ) -> None:
        self._task, self._model, self._meter = task, model, meter
        self._deadline, self._limit_keys = deadline, limit_keys
        # Parsing and encoding get half of the time at most, so that some is left for the forwards.
        self._reading_deadline = deadline.share(2)
        # How long after the deadline results are still written.
        self._allowed_overrun = 0.0
        # By HTTP request: the least rows that it can have, known before it is encoded, the rows
        # that are encoded, and the numbers in its results.
        self._least_rows, self._rows = Counter[int](), Counter[int]()
        self._result_numbers, self._max_bytes = Counter[int](), max_result_bytes
        # The HTTP requests with too many rows or numbers.
        self.exceeded = set[int]()
        # The maximum costs of what is parsed, and of what runs, between two checks of the deadline.
        self.reading_budget = CHUNK_CHARACTERS
        self.budget = CHUNK_FORWARDS * task.forward_budget(model)

    @staticmethod
    def reading_cost(state: RequestState) -> int:
        """Return what parsing and encoding a request costs, in characters."""
        return max(CHUNK_CHARACTERS // CHUNK_TEXTS, text_size(state.request.inputs))

    def parse(self, state: RequestState) -> None:
        """Check the request, unless its HTTP request already has too many rows.

        Raises:
            RequestError: it cannot be understood, is too large, or no time is left.
        """
        http_id = state.http_request_id
        if http_id in self.exceeded:
            raise self._too_large(http_id)
        if self._reading_deadline.passed_together():
            raise self._out_of_time("text was read")
        self._parse(state)
        self._least_rows[http_id] += self._task.least_rows(state.input)
        if self._least_rows[http_id] > self._task.settings.request_rows:
            self.exceeded.add(http_id)
            raise self._too_large(http_id)

    @abstractmethod
    def _parse(self, state: RequestState) -> None:
        """Have the task check the request."""

    def refuse_exceeded(self, batch: Batch) -> None:
        """Set the error of all requests of the HTTP requests with too many rows or results."""
        for state in batch.states:
            if state.error is None and state.http_request_id in self.exceeded:
                state.error = self._too_large(state.http_request_id)

    def encoding_cost(self, state: RequestState) -> int:
        """Return what encoding a request costs beyond its own texts, in characters."""
        return self._task.encoding_cost(state.input)

    def encode(self, states: Sequence[RequestState]) -> list[RequestError | None]:
        """Encode the inputs as rows; returns the error of each request, or None."""
        if self._reading_deadline.passed_together():
            return [self._out_of_time("text was read")] * len(states)
        inputs: list[Any] = []
        for state in states:
            inputs.append(state.input)
        errors: list[RequestError | None] = []
        for state, rows in zip(states, self._task.encode(inputs), strict=True):
            if isinstance(rows, RequestError):
                errors.append(rows)
            else:
                if self._model.capabilities.has_adapters:
                    rows = self._with_adapter(state, rows)
                errors.append(self._store_rows(state, rows))
        return errors

    def _with_adapter(self, state: RequestState, rows: Sequence[Any]) -> Sequence[Any]:
        """Return rows with the number of their adapter; prompts of generated texts name it."""
        number = self._model.adapter_number(self._task.adapter_of(state.input))
        if self._task.description.generation.texts:
            return rows
        return [
            replace(row, features={**row.features, ADAPTER_IDS: [number] * len(row)})
            for row in rows
        ]

    def run(self, states: Sequence[RequestState]) -> list[RequestError | None]:
        """Run the rows of requests; returns the error of each request, or None."""
        rows: list[Any] = []
        for state in states:
            rows += state.rows
        self._meter.count(rows=len(rows))
        outcomes = iter(self._task.run(self._model, rows, self._meter, self._deadline))
        errors: list[RequestError | None] = []
        for state in states:
            errors.append(self._store_outputs(state, outcomes))
            # In a packed row, numbers that are not finite reach the other texts of the row.
            if (
                isinstance(errors[-1], NotFinite)
                and len(states) > 1
                and self._model.capabilities.supports_packing
            ):
                again = self._task.run(self._model, state.rows, self._meter, self._deadline)
                errors[-1] = self._store_outputs(state, iter(again))
        # If the deadline passed during the forward, decoding may end later by the same time: masks
        # of a large image take seconds.
        overrun = self._deadline.overrun
        late = overrun if 0 < overrun < math.inf else 0.0
        self._allowed_overrun = late + FINISHING_SHARE * self._deadline.seconds
        return errors

    def _store_rows(self, state: RequestState, rows: Sequence[Any]) -> RequestError | None:
        sequences = 0
        for row in rows:
            # In a packed row a text without tokens would have the outputs of a neighbour.
            if not row.cost:
                return BadRequest(
                    "A text of this request has no tokens for this model; send another one."
                )
            sequences += row.sequences
        state.rows = rows
        if state.request.token_count is not None:
            state.request.token_count.tokens = sum(row.tokens for row in rows)
        http_id = state.http_request_id
        self._rows[http_id] += sequences
        self._result_numbers[http_id] += self._task.result_numbers(state.input, rows)
        too_many = self._result_numbers[http_id] * NUMBER_BYTES > self._max_bytes
        if too_many or self._rows[http_id] > self._task.settings.request_rows:
            self.exceeded.add(http_id)
        return None

    def _store_outputs(
        self, state: RequestState, outcomes: Iterator[RowOutcome]
    ) -> RequestError | None:
        found: list[Outputs] = []
        error: RequestError | None = None
        for _ in state.rows:
            outcome = next(outcomes)
            if not isinstance(outcome, RequestError):
                found.append(outcome)
            elif error is None:
                error = outcome
        if isinstance(error, DeadlineExceeded):
            count, cost, unit = len(state.rows), state.cost(), self._task.description.rows.cost_unit
            return self._out_of_time(f"{count:,} rows with {cost:,} {unit} were computed")
        if error is None:
            state.outputs = found
            error = attempt(check_numbers, found)
        return error

    def _out_of_time(self, what: str) -> DeadlineExceeded:
        fewer = self._task.description.rows.smaller_requests
        if self._task.description.generation.texts:
            fewer += ", or a smaller max_new_tokens"
        return DeadlineExceeded(
            f"The time limit of the batch, {self._deadline.seconds:g} s ({self._limit_keys}),"
            f" passed before this request's {what}; send it again, or send {fewer}."
        )

    def _too_large(self, http_id: int) -> RequestTooLarge:
        numbers = self._result_numbers[http_id]
        if numbers * NUMBER_BYTES > self._max_bytes:
            return RequestTooLarge(
                f"The results of this request have at least {numbers:,} numbers, too"
                f" many for the server's max_response_size of {self._max_bytes:,}; send"
                f" {self._task.description.rows.smaller_results}."
            )
        rows = max(self._least_rows[http_id], self._rows[http_id])
        return RequestTooLarge(
            f"The texts of this request make at least {rows:,} rows, counting each"
            " window of a long text and each sequence of a prompt, and this model takes"
            f" {self._task.settings.request_rows:,} a request; send them in parts, or ask for less."
        )


class PredictionSteps(Steps):
    """The steps of predictions."""

    def _parse(self, state: RequestState) -> None:
        state.input = self._task.parse(state.request)

    def decode(self, state: RequestState) -> None:
        """Turn the outputs into the result, and drop the outputs, which may be gigabytes.

        Raises:
            DeadlineExceeded: no time is left.
        """
        overrun = self._deadline.overrun
        if overrun > self._allowed_overrun or overrun == math.inf:
            raise self._out_of_time("result was written")
        state.result = self._task.decode(state.input, state.rows, state.outputs)
        state.outputs = ()


class ExplanationSteps(Steps):
    """The steps of explanations until the outputs to explain are computed.

    Args:
        target: the explanation target of the mode; None for a model that is not explained.
    """

    def __init__(
        self, *arguments: Any, target: BaseExplanationTarget[Any] | None, **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self._target = target

    def _parse(self, state: RequestState) -> None:
        if self._target is None:
            raise NotExplained
        explanation, prediction = split_parameters(
            self._target.parameters, state.request.parameters
        )
        prediction = {**self._target.default_parameters, **self._task.defaults, **prediction}
        state.settings = self._target.parameters.of_request({}, explanation)
        request = replace(state.request, parameters=prediction)
        state.input = self._target.parse(request, state.settings)


class NotExplained(Unprocessable):
    """The model is not explained."""

    def __init__(self) -> None:
        super().__init__(
            "This model is not explained; its YAML has captum_explanation: false, "
            "or its mode or checkpoint has no explanation."
        )
