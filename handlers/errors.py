"""The error hierarchy, and the isolation of errors between the rows of a batch.

KitError
├── ConfigError              the YAML or the archive is wrong: loading, packing and downloading stop
│   ├── WrongConfig          a key, a value or a combination of values in the YAML
│   └── WrongCheckpoint      the checkpoint files do not match the YAML
└── RequestError             one request failed: only its row has the error status
    ├── BadRequest           400  malformed request
    ├── NotFound             404  unknown path below the path of the model
    ├── RequestTooLarge      413  too many rows or too long a text
    │   └── TextTooLong      413  more text, or more new tokens, than the model takes
    ├── Unprocessable        422  well-formed, but not supported by this model
    │   ├── UnsupportedByBackend  422  not supported by the back end, but by `generate`
    │   └── NotFinite        422  the outputs of the model have NaN or infinity
    ├── Overloaded           503  temporarily not available
    │   ├── DeadlineExceeded 503  the time limit of the batch passed
    │   └── DeviceFailed     503  the accelerator failed, and the worker starts again
    │       ├── EngineFailed 503  the back end failed, and the worker starts again
    │       └── WorkerHangs  503  the batch does not end, and the worker starts again
    ├── OutOfMemory          507  the request alone does not fit in memory
    └── InternalError        500  a bug in this kit
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from pathlib import Path
from typing import Any, ClassVar, Literal, NotRequired, TypeVar

from typing_extensions import TypedDict

from .compat.device_errors import is_device_failure, is_out_of_memory

# Sequences by which a terminal changes the colour of a text.
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
HubErrorType = Literal["validation", "overloaded", "generation"]


class ErrorBody(TypedDict):
    """An error in TorchServe's own shape; in a list, in the place of the result."""

    code: int
    type: str
    message: str


class HubErrorBody(TypedDict):
    """An error in the shape of text-generation-inference."""

    error: str
    error_type: NotRequired[HubErrorType]


class WholeErrorBody(ErrorBody, HubErrorBody):
    """A response that is one error, in both shapes."""


class KitError(Exception):
    """Base class of the errors that this kit raises."""


class ConfigError(KitError):
    """A model cannot be downloaded, packed or loaded as its YAML specifies."""


class WrongConfig(ConfigError):
    """A key or value of the YAML is wrong.

    Args:
        where: the key or file.
    """

    def __init__(self, where: str, problem: str, remedy: str) -> None:
        self.where, self.problem, self.remedy = where, problem, remedy
        super().__init__(_sentence(where, problem, remedy))


class WrongCheckpoint(ConfigError):
    """The files of a checkpoint are missing, unreadable or do not match the YAML.

    Args:
        where: the file or checkpoint.
    """

    def __init__(self, where: str, problem: str, remedy: str) -> None:
        self.where, self.problem, self.remedy = where, problem, remedy
        super().__init__(_sentence(where, problem, remedy))


class RequestError(KitError):
    """The error of a single request, which has the error as its response.

    Attributes:
        kind: the type that TorchServe has for such errors.
        hub_type: the type that text-generation-inference has for them; None where it has none.
        headers: further headers of the response.
    """

    status: ClassVar[int]
    kind: ClassVar[str]
    hub_type: ClassVar[HubErrorType | None] = "generation"
    headers: Mapping[str, str] = {}

    def body(self) -> ErrorBody:
        """Return the error in the shape that TorchServe uses for its own errors."""
        return {"code": self.status, "type": self.kind, "message": str(self)}

    def hub_body(self) -> HubErrorBody:
        """Return the error in the shape of text-generation-inference."""
        if self.hub_type is None:
            return {"error": str(self)}
        return {"error": str(self), "error_type": self.hub_type}

    def whole_body(self) -> WholeErrorBody:
        """Return the body of a response that is the error, in both shapes.

        Hugging Face's clients, and those of text-generation-inference, send requests to the path of
        a model.
        """
        return {**self.body(), **self.hub_body()}


class BadRequest(RequestError):
    """The request is malformed."""

    status = 400
    kind = "BadRequestException"
    hub_type = "validation"


class NotFound(RequestError):
    """The path below the path of the model does not exist."""

    status = 404
    kind = "ResourceNotFoundException"
    hub_type = None


class RequestTooLarge(RequestError):
    """The request has too many rows or too long a text."""

    status = 413
    kind = "RequestEntityTooLargeException"
    hub_type = "validation"


class TextTooLong(RequestTooLarge):
    """A text of the request, or it and the new one that it asks for, is longer than allowed.

    A client mends it by sending less of the text. Some protocols have a separate error for it.
    """


class Unprocessable(RequestError):
    """The request is well-formed, but this model does not support it."""

    status = 422
    kind = "UnprocessableEntityException"
    hub_type = "validation"


class UnsupportedByBackend(Unprocessable):
    """The generation back end does not support the request; `generate` does."""


class NotFinite(Unprocessable):
    """The model computes no finite numbers for the request."""


class Overloaded(RequestError):
    """The model cannot process the request now; the client may retry."""

    status = 503
    kind = "ServiceUnavailableException"
    hub_type = "overloaded"
    headers = {"Retry-After": "1"}


class DeadlineExceeded(Overloaded):
    """The time limit of the batch passed before the request was computed."""

    def __init__(
        self,
        message: str = "The time limit of the batch passed before this request was computed"
        "; send it again, or ask for less.",
    ) -> None:
        super().__init__(message)


class DeviceFailed(Overloaded):
    """The accelerator failed; this process cannot use it any more."""

    def __init__(self, what: str = "accelerator") -> None:
        super().__init__(
            f"The {what} of this worker failed, and the worker starts again; send the request"
            " again."
        )


class EngineFailed(DeviceFailed):
    """The generation back end failed; this process has no other one."""

    def __init__(self) -> None:
        super().__init__("engine")


class WorkerHangs(DeviceFailed):
    """The batch of the request does not end."""

    def __init__(self) -> None:
        Overloaded.__init__(
            self,
            "The batch of this request took too long and its worker starts again; send the request"
            " again, alone if it was refused before.",
        )


class OutOfMemory(RequestError):
    """The request does not fit in memory, although it ran without others."""

    status = 507
    kind = "InsufficientStorageException"

    def __init__(self) -> None:
        super().__init__(
            "This request does not fit in the memory of the worker; send fewer or shorter texts, or"
            " ask for less."
        )


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
    return " ".join(COLOURS.sub("", str(error)).split())[:max_length] or type(error).__name__


def _sentence(where: str, problem: str, remedy: str) -> str:
    end = "" if remedy.endswith(("?", ".")) else "."
    return f"{where}: {problem}; {remedy}{end}"


logger = logging.getLogger(__name__)

Result = TypeVar("Result")
Item = TypeVar("Item")
Failure = TypeVar("Failure", bound=BaseException)


def attempt(function: Callable[..., Result], *arguments: Any) -> Result | RequestError:
    """Call a function and return its result, or its error instead of raising it.

    Unexpected errors are logged and returned as the error that :func:`classify` makes of them.
    """
    try:
        return function(*arguments)
    except BaseException as error:  # noqa: BLE001 - a panic in tokenizers derives from BaseException
        return as_request_error(error)


def as_request_error(error: BaseException) -> RequestError:
    """Return the error of a request for any error that is caught.

    Raises:
        BaseException: the error itself, where it ends the process.
    """
    if isinstance(error, RequestError):
        return without_frames(error)
    if isinstance(error, (KeyboardInterrupt, SystemExit)):
        raise error
    return classify(error)


def without_frames(error: RequestError) -> RequestError:
    """Return an error that keeps no frames in memory, whose variables are bodies and tensors.

    The error of a library that it was raised for has them, too.
    """
    error.__traceback__ = error.__context__ = error.__cause__ = None
    return error


def copied(error: Failure) -> Failure:
    """Return an equal error to raise, of one that is kept for several callers.

    An error changes when it is raised: it gets the frames of each caller, and the error that the
    caller was handling. Threads that raise the same object change it for each other.
    """
    kind = type(error)
    if not isinstance(error, KitError):
        with suppress(Exception):  # A constructor may take other arguments.
            return copy(error)
    # The constructors of this hierarchy take facts and not the message, so they are not called.
    made = kind.__new__(kind, *error.args)
    made.args = error.args
    made.__dict__.update(error.__dict__)
    return made


def classify(error: BaseException) -> RequestError:
    """Return the error of a request that failed with an unexpected error, and log the latter."""
    if is_out_of_memory(error):
        logger.warning("%s: out of memory", type(error).__name__)
        return OutOfMemory()
    log_bug(error)
    return DeviceFailed() if is_device_failure(error) else InternalError(error)


def attempt_all(
    function: Callable[[Sequence[Item]], Sequence[Result | RequestError]],
    items: Sequence[Item],
    may_repeat: Callable[[Item], bool] = lambda _: True,
) -> list[Result | RequestError]:
    """Call a function with all items, or with fewer and fewer of them where that fails.

    An error then stays with the items that cause it: the items are halved until one is left.

    Args:
        function: returns a result or an error for each item.
        may_repeat: whether an item may be passed again; one that may not gets the error.
    """
    if not items:
        return []
    try:
        return list(function(items))
    except BaseException as error:  # noqa: BLE001 - as in `attempt`
        failure = as_request_error(error)
    return attempt_parts(failure, function, items, may_repeat)


def attempt_parts(
    together: RequestError,
    function: Callable[[Sequence[Item]], Sequence[Result | RequestError]],
    items: Sequence[Item],
    may_repeat: Callable[[Item], bool] = lambda _: True,
) -> list[Result | RequestError]:
    """Call a function with fewer and fewer items, after it has failed with all of them.

    Args:
        function: returns a result or an error for each item.
        may_repeat: whether an item may be passed again; one that may not gets the error.
    """
    repeats = [may_repeat(item) for item in items]
    again = [item for item, repeat in zip(items, repeats, strict=True) if repeat]
    if len(items) == 1 or not again or isinstance(together, DeviceFailed):
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
