"""An archive's model behind the dispatcher: answers batches of HTTP requests in a thread.

It imports the handlers of the archive: call `hf_serve.hosts.archives.import_from` first.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hf_serve.handlers.config.model_config import ModelConfig
from hf_serve.handlers.errors import classify
from hf_serve.handlers.http.limits import BodyLimits
from hf_serve.handlers.http.request import HttpRequest
from hf_serve.handlers.http.response import HttpResponse, encode_json, has_failed
from hf_serve.hosts.archive_handlers import (
    Deadline,
    Dispatcher,
    FreedMemory,
    Meter,
    load_engine,
    pick_device,
    prepare_process,
)
from hf_serve.hosts.archives import config_file
from hf_serve.hosts.one_process import require_one_process

Respond = Callable[[HttpResponse, bool], None]
Report = Callable[[Meter, float], None]


@dataclass(frozen=True)
class Incoming:
    """A request to a model.

    Attributes:
        headers: its headers, with TorchServe's `url_path` and `explain`.
        respond: takes each part of its response, and whether it is the last one.
    """

    row: Mapping[str, Any]
    headers: Mapping[str, Any]
    respond: Respond


class ArchiveModel:
    """A loaded archive that answers HTTP requests.

    Args:
        limits: the limits of bodies without their compression, and of responses.
        device: where it runs; by default the first GPU, where there is one and the YAML does not
            exclude it.
        report: takes counts and stage times of each batch, and its seconds.

    Raises:
        ConfigError: the archive does not load, or is for TorchServe only.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        version: str,
        limits: BodyLimits,
        device: str = "",
        report: Report = lambda _meter, _seconds: None,
    ) -> None:
        prepare_process()
        self.config = ModelConfig.read(config_file(folder))
        require_one_process(self.config, folder)
        gpu = {} if self.config.deviceType == "cpu" else {"gpu_id": 0}
        self.engine = load_engine(folder, self.config, device or str(pick_device(gpu)))
        self._dispatcher = Dispatcher(self.engine, name, version, limits)
        # The dispatcher of older archives sets the limits of a request by itself.
        self._http_request = getattr(self._dispatcher, "http_request", HttpRequest)
        self._freed_memory, self._report = FreedMemory(), report

    @property
    def runs_side_by_side(self) -> bool:
        """Whether each request is answered in a separate thread, with `continuousBatching`."""
        return bool(self.config.continuousBatching)

    @property
    def has_failed(self) -> bool:
        """Whether this process has to be replaced, because the model cannot answer any more."""
        # The models of older archives do not say it.
        has_ended = bool(getattr(self.engine.model, "has_failed", False))
        return self.engine.device_failed or has_ended

    def incoming(
        self, row: Mapping[str, Any], headers: Mapping[str, Any], respond: Respond
    ) -> Incoming:
        """Return a request as :meth:`answer` takes it."""
        return Incoming(row, headers, respond)

    def deadline(self) -> Deadline:
        """Return the time limit of a batch that begins now."""
        return Deadline(self.engine.limits.predict)

    def answer(self, batch: Sequence[Incoming], deadline: Deadline) -> None:
        """Answer a batch of requests together; `respond` is called for each of them."""
        answered: set[int] = set()
        try:
            self._answer(batch, deadline, answered)
        except Exception as error:  # noqa: BLE001 - every client gets a response
            failure = classify(error)
            response = HttpResponse(encode_json(failure.whole_body()), failure.status)
            for number, incoming in enumerate(batch):
                if number not in answered:
                    incoming.respond(response, True)

    def explains(self, incoming: Incoming) -> bool:
        """Return whether a request asks for an explanation."""
        return HttpRequest({}, incoming.headers).explains

    def answer_alone(self, incoming: Incoming, deadline: Deadline) -> None:
        """Answer a request while others run; the caller passes one explanation at a time."""
        self.answer([incoming], deadline)

    def _answer(self, batch: Sequence[Incoming], deadline: Deadline, answered: set[int]) -> None:
        http_requests = [
            self._http_request(each.row, each.headers, partial(_send, each, deadline))
            for each in batch
        ]
        if any(http_request.explains for http_request in http_requests):
            deadline.shorten(self.engine.limits.shared_predict)

        def respond(responses: Mapping[int, HttpResponse]) -> None:
            for number in responses.keys() - answered:
                answered.add(number)
                batch[number].respond(responses[number], True)

        meter, start = Meter(), time.perf_counter()
        responses = self._dispatcher.dispatch(http_requests, meter, deadline, respond)
        respond(dict(enumerate(responses)))
        self._report(meter, time.perf_counter() - start)
        if any(has_failed(response) for response in responses):
            self.engine.check_health()
        if meter.counts["errors"]:
            self._freed_memory.release()


def _send(incoming: Incoming, deadline: Deadline, part: HttpResponse) -> None:
    """Send a part of a response; with it the time limit starts again, as with TorchServe."""
    deadline.restart()
    incoming.respond(part, False)
