"""Calls whose failure is an outcome: one row's error never touches its neighbours."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from handlers.errors import InternalError, RequestError

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
