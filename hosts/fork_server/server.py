"""The fork server: `python server.py LISTENER PARENT SLOTS KIT MODULES...`.

It imports the modules and forks a worker for each request of a launcher. It has one thread, and
ends with the process that started it, which is TorchServe.
"""

from __future__ import annotations

import gc
import importlib
import logging
import os
import pkgutil
import selectors
import signal
import socket
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from runpy import run_path

ENVIRONMENT = dict(os.environ)
BASE_PATH = sys.path[0 if sys.flags.safe_path else 1 :]
HF_SERVE = Path(__file__).absolute().parents[2]
sys.path[:] = [str(HF_SERVE.parent), *BASE_PATH]

from hf_serve.hosts.fork_server import messages, worker
from hf_serve.hosts.fork_server.conditions import why_not_forked
from hf_serve.hosts.fork_server.kernel import die_with_parent, oom_kills, show_command
from hf_serve.hosts.fork_server.messages import (
    ENDED,
    OUT_OF_MEMORY,
    TORCHSERVE_SCRIPT,
    WorkerRequest,
)

TASKS = Path("/proc/self/task")
# Variables that hold during the imports alone:
# - torch asks the driver for the number of GPUs, without a CUDA context, after which a fork has no
#   CUDA;
# - the allocator of pyarrow, which transformers imports by way of pandas, starts no thread.
IMPORT_VARIABLES = {
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
# A worker that loads longer keeps no others from it, and none waits longer. Together with the time
# in which a launcher waits for the server, it must be below TorchServe's two minutes for a start.
LOADING_SECONDS = 45.0


class NotForkable(Exception):
    """This process cannot be forked safely, for the reason in the message."""


@dataclass(eq=False)
class Launcher:
    """A launcher that is connected.

    Attributes:
        request: the worker that it asks for.
        asked: when it asked, or when the worker was forked.
        signals: signals that came before the worker.
        pid: the worker; None before the fork.
        loading: open while the worker loads its model.
    """

    connection: socket.socket
    request: WorkerRequest | None = None
    asked: float = 0.0
    streams: list[int] = field(default_factory=list)
    signals: list[int] = field(default_factory=list)
    pid: int | None = None
    loading: int | None = None


@dataclass
class Fork:
    """What a fork has to become.

    Attributes:
        loading: a file descriptor to close when the model is loaded.
    """

    request: WorkerRequest
    streams: list[int]
    loading: int


def has_turn(waited: float, loading: Iterable[float], slots: int) -> bool:
    """Return whether a worker may start to load its model.

    Args:
        waited: how long it has waited, in seconds.
        loading: for how long each of the others has been loading.
        slots: how many may load at the same time.
    """
    return waited >= LOADING_SECONDS or sum(age < LOADING_SECONDS for age in loading) < slots


def next_turn(waited: Iterable[float], loading: Iterable[float]) -> float | None:
    """Return after how many seconds a worker has its turn at the latest; None if none waits."""
    waiting = list(waited)
    ages = [age for age in (*waiting, *loading) if age < LOADING_SECONDS]
    return LOADING_SECONDS - max(ages, default=LOADING_SECONDS) if waiting else None


class ForkServer:
    """Forks workers for launchers.

    Args:
        slots: how many workers load their models at the same time.
    """

    def __init__(self, listener: socket.socket, slots: int) -> None:
        self._listener, self._slots = listener, slots
        self._selector = selectors.DefaultSelector()
        self._launchers: list[Launcher] = []
        self._oom_kills = oom_kills()
        self._wakeup, wakeup = os.pipe()
        for each in (self._wakeup, wakeup):
            os.set_blocking(each, False)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._wakeup, selectors.EVENT_READ, self._reap)
        self._own = [self._wakeup, wakeup]

    def serve(self) -> Fork:
        """Serve launchers for ever; it returns in each fork, with what that has to become."""
        while True:
            for key, _events in self._selector.select(self._timeout()):
                key.data()
            for launcher in tuple(self._launchers):
                if launcher.request and launcher.pid is None and self._has_turn(launcher):
                    fork = self._fork(launcher, launcher.request)
                    if fork:
                        return fork

    def _accept(self) -> None:
        try:
            connection, _address = self._listener.accept()
        except OSError:  # The launcher has ended, or this process has too many files.
            return
        launcher = Launcher(connection)
        self._launchers.append(launcher)
        self._selector.register(connection, selectors.EVENT_READ, lambda: self._read(launcher))
        with suppress(OSError):
            messages.send(connection, {"version": messages.VERSION})

    def _read(self, launcher: Launcher) -> None:
        """Read a request, a signal, or the end of a launcher."""
        try:
            if launcher.request is None:
                self._read_request(launcher)
            else:
                self._read_signal(launcher)
        except (OSError, ValueError, TypeError, EOFError):
            self._drop(launcher)

    def _read_request(self, launcher: Launcher) -> None:
        found = messages.receive_request(launcher.connection)
        if found is None:
            raise EOFError
        launcher.request, launcher.streams = found
        launcher.asked = time.monotonic()
        if refusal := _why_refused(launcher.request):
            messages.send(launcher.connection, {"refused": refusal})
            raise EOFError

    def _read_signal(self, launcher: Launcher) -> None:
        message = messages.receive(launcher.connection)
        if message is None:
            raise EOFError
        if launcher.pid is None:
            launcher.signals.append(message["signal"])
        else:
            _kill(launcher.pid, message["signal"])

    def _drop(self, launcher: Launcher) -> None:
        """Forget a launcher; a worker whose launcher has ended is killed."""
        if launcher in self._launchers:
            self._launchers.remove(launcher)
            self._selector.unregister(launcher.connection)
        launcher.connection.close()
        self._close_streams(launcher)
        if launcher.pid is not None:
            # TorchServe kills the launcher of a worker that has ended: its own end is the first.
            ended, status = os.waitpid(launcher.pid, os.WNOHANG)
            if ended:
                self._log_end(ended, status)
            else:
                _kill(launcher.pid, signal.SIGKILL)
        self._end_loading(launcher)

    def _has_turn(self, launcher: Launcher) -> bool:
        return has_turn(time.monotonic() - launcher.asked, self._loading(), self._slots)

    def _timeout(self) -> float | None:
        """Return when the next launcher has its turn, if nothing happens before."""
        now = time.monotonic()
        waiting = [each for each in self._launchers if each.request and each.pid is None]
        return next_turn([now - each.asked for each in waiting], self._loading())

    def _loading(self) -> list[float]:
        now = time.monotonic()
        return [now - each.asked for each in self._launchers if each.loading is not None]

    def _fork(self, launcher: Launcher, request: WorkerRequest) -> Fork | None:
        """Fork a worker; it returns what to become in the fork, and None in the server."""
        server = os.getpid()
        try:
            reader, writer = os.pipe()
            pid = os.fork()
        except OSError as error:
            messages.send(launcher.connection, {"refused": str(error)})
            self._drop(launcher)
            return None
        if pid == 0:
            die_with_parent(server)
            self._close_all(launcher, reader)
            return Fork(request, launcher.streams, writer)
        os.close(writer)
        self._close_streams(launcher)
        launcher.pid, launcher.loading, launcher.asked = pid, reader, time.monotonic()
        self._selector.register(reader, selectors.EVENT_READ, lambda: self._end_loading(launcher))
        for number in launcher.signals:
            _kill(pid, number)
        with suppress(OSError):
            messages.send(launcher.connection, {"pid": pid})
        return None

    def _end_loading(self, launcher: Launcher) -> None:
        if launcher.loading is not None:
            self._selector.unregister(launcher.loading)
            os.close(launcher.loading)
            launcher.loading = None

    def _reap(self) -> None:
        """Tell launchers that their workers have ended."""
        with suppress(BlockingIOError):
            os.read(self._wakeup, 4096)
        with suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = found
                for launcher in [each for each in self._launchers if each.pid == pid]:
                    self._log_end(pid, status)
                    launcher.pid = None
                    with suppress(OSError):
                        messages.send(launcher.connection, {"status": status})
                    self._drop(launcher)

    def _log_end(self, pid: int, status: int) -> None:
        """Log how a worker ended; TorchServe does not."""
        code = os.waitstatus_to_exitcode(status)
        by_system = code == -signal.SIGKILL and oom_kills() > self._oom_kills
        _log(ENDED.format(pid=pid, end=_describe_end(code) + (OUT_OF_MEMORY if by_system else "")))

    def _close_streams(self, launcher: Launcher) -> None:
        for stream in launcher.streams:
            os.close(stream)
        launcher.streams = []

    def _close_all(self, launcher: Launcher, reader: int) -> None:
        """Close what belongs to the server, in a fork."""
        signal.set_wakeup_fd(-1)
        self._selector.close()
        self._listener.close()
        for each in self._launchers:
            each.connection.close()
            if each.loading is not None:
                os.close(each.loading)
            if each is not launcher:
                self._close_streams(each)
        for descriptor in (*self._own, reader):
            os.close(descriptor)


def import_modules(names: Sequence[str], kit: str) -> None:
    """Import modules that are installed, and `handlers` from a folder."""
    os.environ.update(IMPORT_VARIABLES)
    sys.path[:] = [kit, *BASE_PATH]
    for name in [each for pattern in names for each in _modules_of(pattern)]:
        try:
            importlib.import_module(name)
        except ImportError as error:
            _log(f"{name} is not imported: {error}")
    if start := sys.modules.get("handlers.worker_start"):
        start.warm_caches()
    sys.path[:] = BASE_PATH
    for name in IMPORT_VARIABLES:
        del os.environ[name]
    os.environ.update({name: ENVIRONMENT[name] for name in IMPORT_VARIABLES if name in ENVIRONMENT})


def _modules_of(pattern: str) -> list[str]:
    """Return `a.b` and `a.c` for `a.*`."""
    package = pattern.removesuffix(".*")
    if package == pattern:
        return [pattern]
    found = importlib.import_module(package)
    return [each.name for each in pkgutil.iter_modules(found.__path__, f"{package}.")]


def require_forkable() -> None:
    """Check that forks of this process work; OpenBLAS ends its threads before a fork.

    Raises:
        NotForkable: this process has other threads, or a fork could not do what a worker does.
    """
    if logging.root.handlers:
        raise NotForkable("an imported package has set up the root logger")
    pid = os.fork()
    if pid == 0:
        os._exit(_try_fork())
    _pid, status = os.waitpid(pid, 0)
    if status:
        raise NotForkable("a fork could not use CUDA, or could not show its command")
    if threads := _other_threads():
        raise NotForkable(f"imported packages have started threads: {', '.join(threads)}")


def _other_threads() -> list[str]:
    """Return the names of the threads of this process, without the first one."""
    others = (task for task in TASKS.iterdir() if task.name != str(os.getpid()))
    return sorted((task / "comm").read_text("utf-8").strip() for task in others)


def _try_fork() -> int:
    """Return 0 if this fork works, in its own process."""
    try:
        show_command([sys.executable], {})
    except OSError:
        return 1
    # The `handlers` that this process imports may come from an archive.
    torch = run_path(str(HF_SERVE / "handlers" / "compat" / "torch.py"))
    return int(torch["is_unusable_after_fork"]())


def _why_refused(request: WorkerRequest) -> str | None:
    try:
        return why_not_forked(request, ENVIRONMENT)
    except Exception as error:  # noqa: BLE001 - a strange archive must not end the server
        return f"{type(error).__name__} while its archive was read"


def _describe_end(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"


def _kill(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _log(sentence: str) -> None:
    sys.stdout.write(f"{sentence}\n")
    sys.stdout.flush()


def main(listener: socket.socket, slots: int, kit: str, names: Sequence[str]) -> None:
    """Import the modules, serve launchers, and run the worker in each fork."""
    gc.disable()
    import_modules(names, kit)
    try:
        require_forkable()
    except NotForkable as error:
        _log(f"Workers import all packages themselves: {error}")
        return
    added = {name: value for name, value in os.environ.items() if ENVIRONMENT.get(name) != value}
    gc.freeze()
    fork = ForkServer(listener, slots).serve()
    worker.prepare(fork.request, fork.streams, BASE_PATH, added)
    script = fork.request.arguments[0]
    if Path(script).name == TORCHSERVE_SCRIPT:
        worker.call_when_loaded(partial(os.close, fork.loading))
    else:  # The server at one URL counts what loads itself.
        os.close(fork.loading)
    worker.run(script)


if __name__ == "__main__":
    _listener, _parent, _slots, _kit, *_modules = sys.argv[1:]
    die_with_parent(int(_parent))
    main(socket.socket(fileno=int(_listener)), int(_slots), _kit, _modules)
