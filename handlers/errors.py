"""The error hierarchy, and the isolation of errors between the rows of a batch.

KitError
├── ConfigError              the YAML or the archive is wrong: loading, packing and downloading stop
│   ├── WrongConfig          a key, a value or a combination of values in the YAML
│   └── WrongCheckpoint      the checkpoint files do not match the YAML
└── RequestError             one request failed: only its row has the error status
    ├── BadRequest           400  malformed request
    ├── NotFound             404  unknown path below the path of the model
    ├── RequestTooLarge      413  too many rows or too long a text
    ├── Unprocessable        422  well-formed, but not supported by this model
    ├── Overloaded           503  temporarily not available
    │   └── OutOfTime        503  the time limit of the batch passed
    └── InternalError        500  a bug in this kit
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar


class KitError(Exception):
    """Base class of the errors that this kit raises."""


class ConfigError(KitError):
    """A model cannot be downloaded, packed or loaded as its YAML specifies."""


class WrongConfig(ConfigError):
    """A key or value of the YAML is wrong.

    Args:
        where: the key or file.
        problem: what is wrong.
        remedy: how to fix it.
    """

    def __init__(self, where: str, problem: str, remedy: str) -> None:
        self.where, self.problem, self.remedy = where, problem, remedy
        super().__init__(_sentence(where, problem, remedy))


class WrongCheckpoint(ConfigError):
    """The files of a checkpoint are missing, unreadable or do not match the YAML.

    Args:
        where: the file or checkpoint.
        problem: what is wrong.
        remedy: how to fix it.
    """

    def __init__(self, where: str, problem: str, remedy: str) -> None:
        self.where, self.problem, self.remedy = where, problem, remedy
        super().__init__(_sentence(where, problem, remedy))


class RequestError(KitError):
    """The error of a single request, which has the error as its response."""

    status: ClassVar[int]
    kind: ClassVar[str]

    def body(self) -> dict[str, Any]:
        """Return the error in the shape that TorchServe uses for its own errors."""
        return {"code": self.status, "type": self.kind, "message": str(self)}


class BadRequest(RequestError):
    """The request is malformed."""

    status = 400
    kind = "BadRequestException"


class NotFound(RequestError):
    """The path below the path of the model does not exist."""

    status = 404
    kind = "ResourceNotFoundException"


class RequestTooLarge(RequestError):
    """The request has too many rows or too long a text."""

    status = 413
    kind = "RequestEntityTooLargeException"


class Unprocessable(RequestError):
    """The request is well-formed, but this model does not support it."""

    status = 422
    kind = "UnprocessableEntityException"


class Overloaded(RequestError):
    """The model cannot process the request now; the client may retry."""

    status = 503
    kind = "ServiceUnavailableException"


class OutOfTime(Overloaded):
    """The time limit of the batch passed before the request was computed."""

    def __init__(
        self,
        message: str = "The time limit of the batch passed before this request was computed"
        "; send it again, or ask for less.",
    ) -> None:
        super().__init__(message)


class InternalError(RequestError):
    """A bug in this kit; the message contains no part of the request."""

    status = 500
    kind = "InternalServerException"

    def __init__(self, cause: BaseException) -> None:
        super().__init__(
            f"The handler failed with {type(cause).__name__}; the worker's log has the trace."
        )


def summarize(error: BaseException, max_length: int = 200) -> str:
    """Return the message of a library's error on one line, truncated to `max_length`.

    An error without a message is represented by the name of its class.
    """
    return " ".join(str(error).split())[:max_length] or type(error).__name__


def _sentence(where: str, problem: str, remedy: str) -> str:
    end = "" if remedy.endswith(("?", ".")) else "."
    return f"{where}: {problem}; {remedy}{end}"


logger = logging.getLogger(__name__)

Result = TypeVar("Result")
Item = TypeVar("Item")


def attempt(function: Callable[..., Result], *arguments: Any) -> Result | RequestError:
    """Call a function and return its result, or its error instead of raising it.

    Unexpected errors are logged and returned as :class:`InternalError`.
    """
    try:
        return function(*arguments)
    except RequestError as error:
        return error
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001 - a panic in tokenizers derives from BaseException
        log_bug(error)
        return InternalError(error)


def attempt_all(
    function: Callable[[Sequence[Item]], Sequence[Result | RequestError]],
    items: Sequence[Item],
    may_repeat: Callable[[Item], bool] = lambda _: True,
) -> list[Result | RequestError]:
    """Call a function with all items, or with fewer and fewer of them where that fails.

    An error then stays with the items that cause it: the items are halved until one is left.

    Args:
        function: returns a result or an error for each item.
        items: the items.
        may_repeat: whether an item may be passed again; one that may not gets the error.
    """
    if not items:
        return []
    together = attempt(function, items)
    if not isinstance(together, RequestError):
        return list(together)
    repeats = [may_repeat(item) for item in items]
    again = [item for item, repeat in zip(items, repeats, strict=True) if repeat]
    if len(items) == 1 or not again:
        return [together] * len(items)
    # Without those that may not be repeated, the others may work together.
    parts = [again] if len(again) < len(items) else _halves(again)
    repeated = iter([each for part in parts for each in attempt_all(function, part, may_repeat)])
    return [next(repeated) if repeat else together for repeat in repeats]


def _halves(items: Sequence[Item]) -> list[Sequence[Item]]:
    middle = len(items) // 2
    return [items[:middle], items[middle:]]


def log_bug(error: BaseException) -> None:
    """Log the stack of an unexpected error without its message, which can contain request text."""
    trace, frames = error.__traceback__, []
    while trace:
        code = trace.tb_frame.f_code
        frames.append(f"{Path(code.co_filename).name}:{trace.tb_lineno} {code.co_name}")
        trace = trace.tb_next
    logger.error("%s in the handler, at %s", type(error).__name__, " > ".join(frames))
