"""Everything that can go wrong, each with its facts.

KitError
├── ConfigError              the YAML or the archive is wrong: loading, packing and downloading stop
│   ├── WrongConfig          a key, a value or a pair of values in the YAML
│   └── WrongCheckpoint      the files beside the YAML do not fit it
└── RequestError             one request is wrong: its row gets the status, no other
    ├── BadRequest           400  cannot be understood
    ├── NotFound             404  no such path below the model's
    ├── RequestTooLarge      413  too large or too long
    ├── Unprocessable        422  understood, but not possible for this model
    ├── Overloaded           503  not now
    └── InternalError        500  a bug of this kit
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, TypeVar


class KitError(Exception):
    """Base of every error that this kit raises on purpose."""


class ConfigError(KitError):
    """A model cannot be downloaded, packed or loaded as its YAML asks."""


class WrongConfig(ConfigError):
    """A key or value of the YAML is wrong; says where, what was found and what would be right."""

    def __init__(self, where: str, problem: str, remedy: str) -> None:
        self.where, self.problem, self.remedy = where, problem, remedy
        super().__init__(_sentence(where, problem, remedy))


class WrongCheckpoint(ConfigError):
    """The checkpoint's files do not do what the YAML asks of them."""

    def __init__(self, place: str, problem: str, remedy: str) -> None:
        self.place, self.problem, self.remedy = place, problem, remedy
        super().__init__(_sentence(place, problem, remedy))


class RequestError(KitError):
    """A request that gets an answer of its own instead of a result."""

    status: ClassVar[int]
    kind: ClassVar[str]

    def body(self) -> dict[str, Any]:
        """Return the error in the shape that TorchServe uses for its own errors."""
        return {"code": self.status, "type": self.kind, "message": str(self)}


class BadRequest(RequestError):
    """The request cannot be understood."""

    status = 400
    kind = "BadRequestException"


class NotFound(RequestError):
    """The path below the model's own leads nowhere."""

    status = 404
    kind = "ResourceNotFoundException"


class RequestTooLarge(RequestError):
    """The request has too many rows or too long a text."""

    status = 413
    kind = "RequestEntityTooLargeException"


class Unprocessable(RequestError):
    """The request is understood, but this model cannot do it."""

    status = 422
    kind = "UnprocessableEntityException"


class Overloaded(RequestError):
    """The model cannot take the request now; the client may try again."""

    status = 503
    kind = "ServiceUnavailableException"


class InternalError(RequestError):
    """A bug of this kit; the text carries no detail of the request."""

    status = 500
    kind = "InternalServerException"

    def __init__(self, cause: BaseException) -> None:
        super().__init__(
            f"The handler failed with {type(cause).__name__}; the worker's log has the trace."
        )


def short(error: BaseException, longest: int = 200) -> str:
    """Return what a library's error says as part of a sentence: one line, cut if it is long."""
    return " ".join(str(error).split())[:longest] or type(error).__name__


def _sentence(where: str, problem: str, remedy: str) -> str:
    end = "" if remedy.endswith(("?", ".")) else "."
    return f"{where}: {problem}; {remedy}{end}"


logger = logging.getLogger(__name__)

Result = TypeVar("Result")


def attempt(function: Callable[..., Result], *arguments: Any) -> Result | RequestError:
    """Call a function; an error becomes the outcome, so that neighbours go on."""
    try:
        return function(*arguments)
    except RequestError as error:
        return error
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001 - a panic in the tokenizer is no Exception
        log_bug(error)
        return InternalError(error)


def log_bug(error: BaseException) -> None:
    """Log where an unexpected error arose, without its text: that can hold what a user sent."""
    trace, places = error.__traceback__, []
    while trace:
        code = trace.tb_frame.f_code
        places.append(f"{Path(code.co_filename).name}:{trace.tb_lineno} {code.co_name}")
        trace = trace.tb_next
    logger.error("%s in the handler, at %s", type(error).__name__, " > ".join(places))
