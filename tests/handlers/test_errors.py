from __future__ import annotations

import pytest

from hf_serve.handlers.errors import (
    BadRequest,
    DeadlineExceeded,
    EngineFailed,
    InternalError,
    WrongConfig,
    copied,
    summarize,
)


@pytest.mark.parametrize(
    "error",
    [
        BadRequest("wrong"),
        DeadlineExceeded(),
        EngineFailed(),
        InternalError(ValueError("a secret")),
        WrongConfig("handler.mode", "is wrong", "correct it"),
        OSError(28, "no space"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_copy_of_an_error_is_the_same_error_without_frames(error: Exception) -> None:
    with pytest.raises(type(error)) as caught:
        raise error from ValueError()
    copy = copied(caught.value)
    assert copy is not error and type(copy) is type(error)
    assert (str(copy), copy.args, vars(copy)) == (str(error), error.args, vars(error))
    assert (copy.__traceback__, copy.__cause__, copy.__context__) == (None, None, None)


def test_the_summary_of_an_error_is_one_line_of_limited_length() -> None:
    assert summarize(ValueError("one\n  two\tthree")) == "one two three"
    assert summarize(ValueError("x" * 999), 9) == "x" * 9
    assert summarize(ValueError("\x1b[96mstep 2/3\x1b[0m")) == "step 2/3"


def test_an_error_without_a_message_is_reported_by_its_name() -> None:
    assert summarize(RuntimeError()) == "RuntimeError"
