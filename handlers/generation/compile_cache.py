"""The grammars that were compiled: a known one does not wait for those that are new.

Clients send the same few grammars again and again, and a new one may take long, or never end well.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from threading import BoundedSemaphore, Lock
from typing import Generic, TypeVar

from handlers.errors import Overloaded, RequestError, copied

Compiled = TypeVar("Compiled")
Value = TypeVar("Value")


class CompileCache(Generic[Compiled]):
    """Compiles each grammar once, and keeps the result, or what is wrong with the grammar.

    Of several threads with the same grammar, one compiles it. An error that says nothing about the
    grammar, such as :class:`Overloaded`, is not kept.

    Args:
        compile_grammar: compiles a grammar, in the thread of the first caller.
        size: how many results are kept; and as many errors, which displace no results.
        at_once: how many are compiled at once.
        seconds: how long a grammar may wait for the others that are compiled.
    """

    def __init__(
        self,
        compile_grammar: Callable[[str], Compiled],
        *,
        size: int,
        at_once: int,
        seconds: float,
    ) -> None:
        self._compile, self._seconds = compile_grammar, seconds
        self._lock, self._slots = Lock(), BoundedSemaphore(at_once)
        self._results, self._errors = _Recent[Compiled](size), _Recent[RequestError](size)
        self._running: dict[str, Future[Compiled]] = {}

    def get(self, grammar: str) -> Compiled:
        """Return the compiled grammar.

        Raises:
            RequestError: what is wrong with the grammar.
            Overloaded: others take all the time that it may wait.
        """
        with self._lock:
            if (known := self._results.get(grammar)) is not None:
                return known
            if (error := self._errors.get(grammar)) is not None:
                raise copied(error)
            running = self._running.get(grammar)
            own = self._running[grammar] = running or Future()
        if running is None:
            self._run(grammar, own)
        if failure := own.exception():
            raise copied(failure)
        return own.result()

    def _run(self, grammar: str, future: Future[Compiled]) -> None:
        """Compile a grammar, and pass what became of it to all who wait."""
        try:
            with self._slot():
                compiled = self._compile(grammar)
        except BaseException as error:  # noqa: BLE001 - each caller raises its copy
            with self._lock:
                del self._running[grammar]
                if isinstance(error, RequestError) and not isinstance(error, Overloaded):
                    self._errors.put(grammar, copied(error))
            future.set_exception(copied(error))
        else:
            with self._lock:
                del self._running[grammar]
                self._results.put(grammar, compiled)
            future.set_result(compiled)

    @contextmanager
    def _slot(self) -> Iterator[None]:
        if not self._slots.acquire(timeout=self._seconds):
            raise TooBusyToCompile
        try:
            yield
        finally:
            self._slots.release()


class TooBusyToCompile(Overloaded):
    """The server has no time for a new grammar; this says nothing about the grammar."""

    def __init__(self) -> None:
        super().__init__(
            "The server is too busy to compile the grammar; send the request again later."
        )


class _Recent(Generic[Value]):
    """The values of the keys that were asked for last.

    Args:
        size: how many there are.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._values = OrderedDict[str, Value]()

    def get(self, key: str) -> Value | None:
        """Return the value of a key; None where it is not known, or was forgotten."""
        if key in self._values:
            self._values.move_to_end(key)
        return self._values.get(key)

    def put(self, key: str, value: Value) -> None:
        """Keep the value of a key, in place of the one that nobody asked for the longest."""
        self._values[key] = value
        if len(self._values) > self._size:
            self._values.popitem(last=False)
