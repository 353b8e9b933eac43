"""Back ends in another process, for `continuousBatching: true`.

A back end computes without a pause, so that in the process of the worker no other thread could read
a request or send a token. Its program connects to a socket whose number is the first argument, and
loads the model with the second, a JSON object of arguments. It reads commands and writes events,
one JSON object in each line:

    {"start": 1, "prompt": [464, 3290], "settings": {"max_new_tokens": 8}, "in_parts": true}
    {"cancel": 1}
    {"ping": true}

    {"ready": true}
    {"pong": true}
    {"texts": [{"id": 1, "sequences": [[318, 257]], "logprobs": [-0.5, -2.1], "finished": false}],
     "cache_usage": 3.2}
    {"texts": [{"id": 2, "sequences": [[44]], "logprobs": [-0.1],
                "top_logprobs": [[[44, -0.1], [11, -2.9]]], "finished": true}], "cache_usage": 3.2}
    {"texts": [{"id": 1, "refused": "…"}, {"id": 2, "error": "…"}], "cache_usage": 3.2}
    {"failed": "RuntimeError: …"}

A sequence without `in_parts` has two events, at its first token and at its end: to read the new
tokens of each sequence after each step takes a tenth of the time.

A program answers a ping with a pong between two steps, so that a process which is stopped, or whose
step does not end, gives no pong.
"""

from __future__ import annotations

import itertools
import json
import logging
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

import psutil
import torch
from transformers import GenerationConfig

from ...errors import EngineFailed, RequestError, Unprocessable, WrongCheckpoint, summarize
from ...model import Model
from ...process.deadline import NO_DEADLINE, Deadline
from ...process.threads import LazyLoad, OneThread
from ..generator import Prompt
from ..text_grammar import TextGrammar
from .base import ContinuousModel, NewTokens, Receive, check_capacity

logger = logging.getLogger(__name__)

Result = TypeVar("Result")
START_SECONDS = 600
END_SECONDS = 10.0
# The time limit for the end of the processes that a program has started, after its own.
CHILDREN_SECONDS = 2.0
# The seconds between pings, and the minimum number of pings in the time limit for a sign of life.
PING_SECONDS, PINGS = 5.0, 16


@dataclass(frozen=True)
class BackendProgram:
    """The program of a back end.

    Attributes:
        name: its name, for messages.
        script: the program.
        checkpoint: the file that it loads, for messages.
        remedy: what to do where it does not load the file, for messages.
    """

    name: str
    script: Path
    checkpoint: str
    remedy: str


@dataclass(frozen=True)
class SequenceStart:
    """The command that starts a sequence.

    Attributes:
        number: the id of the sequence.
        prompt: the tokens of its prompt.
        settings: the back end's settings for it.
        in_parts: whether its tokens are sent as they come, rather than at its end.
        media: further keys of the command, about the images of the prompt.
    """

    number: int
    prompt: Sequence[int]
    settings: Mapping[str, Any]
    in_parts: bool
    media: Mapping[str, Any] = field(default_factory=dict)


class BackendProcess:
    """The process of a back end, and the sequences that it generates.

    Args:
        program: the program.
        arguments: the arguments with which it loads the model.
        python: the interpreter; by default the one of this process.
        environment: the environment variables; by default the ones of this process.
        end_seconds: the time limit for its end, after which it is killed.
        hang_seconds: the time limit for a sign of life, after which it is killed.

    Raises:
        WrongCheckpoint: the process does not load the model.
    """

    def __init__(
        self,
        program: BackendProgram,
        arguments: Mapping[str, Any],
        python: str = sys.executable,
        environment: Mapping[str, str] | None = None,
        end_seconds: float = END_SECONDS,
        hang_seconds: float = math.inf,
    ) -> None:
        self._program, self._end_seconds = program, end_seconds
        self._hang_seconds = hang_seconds
        self._ponged, self._ended = threading.Event(), threading.Event()
        self._ponged.set()
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                # -P: the folder of the script has modules with the names of packages.
                [
                    *(python, "-P", str(program.script)),
                    *(str(theirs.fileno()), json.dumps(arguments)),
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=environment,
                # The group includes the processes that the program starts.
                start_new_session=True,
            )
        self._socket = ours
        self._lock = threading.Lock()
        self._receivers: dict[int, Callable[[Mapping[str, Any]], None]] = {}
        self._running: set[int] = set()
        self._commands: SimpleQueue[bytes | None] = SimpleQueue()
        self._cache_usage, self._steps = 0.0, 0
        self._failed = False
        self._closing = threading.Lock()
        self._wait_until_ready()
        # The threads end with the socket, and hold no reference to the model.
        self._threads = [
            threading.Thread(target=run, name=program.name, daemon=True)
            for run in (self._read, self._write, self._watch)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def has_failed(self) -> bool:
        """Whether the process has ended."""
        return self._failed

    @property
    def steps(self) -> int:
        """The number of forwards of the decoder until the last event."""
        return self._steps

    @property
    def sequences(self) -> int:
        """The number of sequences that run or wait."""
        return len(self._receivers)

    @property
    def load_metrics(self) -> Mapping[str, float]:
        """The numbers of running and waiting sequences, and the used percentage of the cache."""
        with self._lock:
            sequences, running = len(self._receivers), len(self._running)
        return {
            "running_texts": running,
            "waiting_texts": sequences - running,
            # A sequence whose client disconnects ends without an event.
            "cache_usage": self._cache_usage if sequences else 0.0,
        }

    def start(
        self, sequence: SequenceStart, capacity: int, receive: Callable[[Mapping[str, Any]], None]
    ) -> None:
        """Start a sequence.

        Args:
            sequence: the sequence.
            capacity: the maximum number of sequences that run or wait.
            receive: takes the events of the sequence.

        Raises:
            EngineFailed: the process has ended.
            Overloaded: too many sequences are running or waiting.
        """
        # A setting that is no JSON fails here, for its own sequence, and not in `_write`.
        command = _line(
            {
                "start": sequence.number,
                "prompt": sequence.prompt,
                "settings": sequence.settings,
                "in_parts": sequence.in_parts,
                **sequence.media,
            }
        )
        with self._lock:
            if self._failed:
                raise EngineFailed
            check_capacity(self.sequences, capacity)
            self._receivers[sequence.number] = receive
        self._commands.put(command)

    def cancel(self, number: int) -> None:
        """End a sequence, unless it has ended."""
        with self._lock:
            is_known = self._forget(number)
        if is_known:
            self._commands.put(_line({"cancel": number}))

    def close(self) -> None:
        """End the process and its child processes, unless they have ended."""
        self._end(signal.SIGTERM)

    def _end(self, first: signal.Signals) -> None:
        """Close the connection and send a signal, then SIGKILL if the process does not end."""
        if not self._closing.acquire(blocking=False):
            return
        self._ended.set()
        self._commands.put(None)
        with suppress(OSError):  # It has ended.
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._signal(first)
        try:
            self._process.wait(self._end_seconds)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            self._process.wait()
        self._end_children()

    def _end_children(self) -> None:
        """Kill the processes that the program has started, unless they end in time.

        After a program that was killed, they are killed at once: it cannot end them any more.
        """
        if self._process.returncode >= 0 or self._process.returncode == -signal.SIGTERM:
            self._wait_for_children()
        if has_running(self._process.pid):
            self._signal(signal.SIGKILL)
            self._wait_for_children()

    def _wait_for_children(self) -> None:
        limit = time.monotonic() + CHILDREN_SECONDS
        while has_running(self._process.pid) and time.monotonic() < limit:
            time.sleep(0.01)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):  # The processes have ended.
            os.killpg(self._process.pid, number)

    def _wait_until_ready(self) -> None:
        self._socket.settimeout(START_SECONDS)
        self._lines = self._socket.makefile("rb")
        try:
            event = json.loads(self._lines.readline() or b'{"failed": "the process ended"}')
        except TimeoutError:
            event = {"failed": f"not loaded in {START_SECONDS} s"}
        self._socket.settimeout(None)
        if "failed" in event:
            self.close()
            reason = summarize(Exception(event["failed"]), 300)
            raise WrongCheckpoint(
                self._program.checkpoint,
                f"{self._program.name} does not load it ({reason})",
                self._program.remedy,
            )

    def _read(self) -> None:
        try:
            for line in self._lines:
                event = json.loads(line)
                if "failed" in event:
                    # The rest of the message may have a part of a request.
                    kind = event["failed"].partition(":")[0]
                    logger.error("%s failed: %s", self._program.name, kind)
                    break
                if "pong" in event:
                    self._ponged.set()
                    continue
                self._cache_usage, self._steps = event["cache_usage"], event["steps"]
                for each in event["texts"]:
                    self._pass_on(each)
        except (OSError, ValueError):  # The socket was closed.
            pass
        finally:
            self._fail()
            self.close()

    def _pass_on(self, event: Mapping[str, Any]) -> None:
        number = event["id"]
        with self._lock:
            receive = self._receivers.get(number)
            if receive is None:  # It was cancelled.
                return
            if event.get("finished", True):
                self._forget(number)
            else:
                self._running.add(number)
        receive(event)

    def _forget(self, number: int) -> bool:
        """Remove a sequence, with the lock held; return whether it was known."""
        self._running.discard(number)
        return self._receivers.pop(number, None) is not None

    def _fail(self) -> None:
        with self._lock:
            self._failed = True
            receivers, self._receivers = self._receivers, {}
            self._running.clear()
        for receive in receivers.values():
            receive({"error": None})

    def _watch(self) -> None:
        """Ping the process, and kill it if it gives no pong for too long."""
        if math.isinf(self._hang_seconds):
            return
        seconds = min(PING_SECONDS, self._hang_seconds / PINGS)
        # The intervals are counted, and not the time: this process may be stopped, too.
        silent = 0
        while not self._ended.wait(seconds):
            if self._ponged.is_set():
                self._ponged.clear()
                silent = 0
                self._commands.put(_line({"ping": True}))
            silent += 1
            if silent * seconds > self._hang_seconds:
                logger.error(
                    "The process of %s gave no sign of life for %g s; it is killed",
                    self._program.name,
                    self._hang_seconds,
                )
                self._fail()
                # A stopped process does not receive SIGTERM.
                self._end(signal.SIGKILL)

    def _write(self) -> None:
        """Send the commands; the process reads them only after a step."""
        while (command := self._commands.get()) is not None:
            try:
                self._socket.sendall(command)
            except OSError:
                # `_read` reports it.
                logger.error("The process of %s has ended", self._program.name)
                return


def has_running(group: int) -> bool:
    """Return whether a process group has processes that have not ended.

    In a container without an init process, or with this process as the first one, orphans that have
    ended stay in the table of processes. Orphans of this process are removed from it.
    """
    with suppress(ChildProcessError):
        while os.waitpid(-group, os.WNOHANG) != (0, 0):
            pass
    return any(_is_running_in(group, pid) for pid in psutil.pids())


def _is_running_in(group: int, pid: int) -> bool:
    try:
        return os.getpgid(pid) == group and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except (ProcessLookupError, psutil.NoSuchProcess):  # It has ended.
        return False


def _line(command: Mapping[str, Any]) -> bytes:
    return json.dumps(command, separators=(",", ":")).encode() + b"\n"


class BackendModel(ContinuousModel, ABC):
    """A model that a back end in another process generates with.

    Args:
        process: the process.
        capacity: the maximum number of sequences that run or wait.
        static: the model for forward passes and batches, which explanations need.
        has_gradients: whether that model has gradients.
    """

    def __init__(
        self,
        process: BackendProcess,
        capacity: int,
        static: LazyLoad[Model],
        *,
        has_gradients: bool,
    ) -> None:
        self._process, self.capacity = process, capacity
        self._static, self._has_gradients = static, has_gradients
        self._numbers, self._one_thread = itertools.count(1), OneThread()
        weakref.finalize(self, process.close)

    @abstractmethod
    def _settings(self, prompt: Prompt, number: int) -> dict[str, Any]:
        """Return the back end's settings for one of the sequences of a prompt.

        Raises:
            Unprocessable: the back end does not support a parameter.
        """

    def _media(self, prompt: Prompt) -> Mapping[str, Any]:
        """Return what a command has about the images of a prompt.

        Raises:
            RequestError: the back end does not read them.
        """
        return {}

    @abstractmethod
    def _constraints(self, grammar: TextGrammar) -> dict[str, Any]:
        """Return the back end's settings for a grammar.

        Raises:
            RequestError: the grammar is invalid, or the back end does not support it.
        """

    @abstractmethod
    def _failure(self, reason: str) -> RequestError:
        """Return the error of a sequence that the back end does not generate."""

    def start(self, prompt: Prompt, number: int, receive: Receive) -> Callable[[], None]:
        settings = self._settings(prompt, number)
        # When a later sequence starts, the first ones of its prompt may have ended.
        new, static = prompt.backend_sequences - number, self._static_sequences
        check_capacity(self._process.sequences + static, self.capacity, new)
        if prompt.grammar:
            settings |= self._constraints(prompt.grammar)
        own = next(self._numbers)
        tokens = [int(token) for token in prompt.features["input_ids"]]
        sequence = SequenceStart(
            own, tokens, settings, in_parts=prompt.is_incremental, media=self._media(prompt)
        )
        self._process.start(
            sequence, self.capacity - static - (new - 1), partial(self._receive, receive)
        )
        return partial(self._process.cancel, own)

    @property
    def has_failed(self) -> bool:
        return self._process.has_failed

    @property
    def steps(self) -> int:
        """The number of forwards of the decoder until now, each for all running sequences."""
        return self._process.steps

    @property
    def load_metrics(self) -> Mapping[str, float]:
        static = self._static_metrics
        return {
            name: value + static.get(name, 0) for name, value in self._process.load_metrics.items()
        }

    def run_exclusively(
        self, function: Callable[[], Result], deadline: Deadline = NO_DEADLINE
    ) -> Result:
        static = self._static.get(deadline)
        self.padded_limit, self.runs_alone = static.padded_limit, static.runs_alone
        return static.run_exclusively(function, deadline)

    def forward(self, batch: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        static = self._static.get()
        with self._one_thread:
            return static.forward(batch)

    @property
    def has_gradients(self) -> bool:
        return self._has_gradients

    @property
    def embeddings(self) -> Sequence[torch.nn.Module]:
        return self._static.get().embeddings if self._has_gradients else ()

    def forward_with_gradients(
        self, batch: Mapping[str, torch.Tensor]
    ) -> Mapping[str, torch.Tensor]:
        static = self._static.get()
        with self._one_thread:
            return static.forward_with_gradients(batch)

    def generate(
        self, batch: Mapping[str, torch.Tensor], config: GenerationConfig, **extra: Any
    ) -> torch.Tensor:
        static = self._static.get()
        with self._one_thread:
            return static.generate(batch, config, **extra)

    @property
    def _static_metrics(self) -> Mapping[str, float]:
        static = self._static.loaded
        return static.load_metrics if static else {}

    @property
    def _static_sequences(self) -> int:
        metrics = self._static_metrics
        return int(metrics.get("running_texts", 0) + metrics.get("waiting_texts", 0))

    def _receive(self, receive: Receive, event: Mapping[str, Any]) -> None:
        if "refused" in event:
            # The last line is the reason, and the other lines are the path to the check.
            reason = event["refused"].strip().rpartition("\n")[2]
            sentence = f"The back end refuses the parameters: {summarize(Exception(reason))}"
            receive(NewTokens(error=Unprocessable(sentence)))
        elif "error" not in event:
            receive(
                NewTokens(
                    event["sequences"],
                    event["logprobs"],
                    event.get("top_logprobs", ()),
                    finished=event["finished"],
                )
            )
        elif event["error"] is None:
            receive(NewTokens(error=EngineFailed()))
        else:
            receive(NewTokens(error=self._failure(summarize(Exception(event["error"])))))
