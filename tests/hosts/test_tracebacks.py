from __future__ import annotations

import pytest

from hf_serve.hosts.tracebacks import last_error, last_line

FRAMES = """Traceback (most recent call last):
  File "handler.py", line 3, in initialize
    load()
    ^^^^^^
"""
CHAIN = "\nDuring handling of the above exception, another exception occurred:\n\n"


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("KeyError: 'x'", "KeyError: 'x'"),
        (
            "handlers.errors.WrongConfig: mode: is 'x'; correct it.",
            "mode: is 'x'; correct it.",
        ),
        (
            "handlers.checkpoints.archive_signature.DamagedArchive: It is damaged.",
            "It is damaged.",
        ),
        ("RuntimeError: sizes differ\n\ta: 1\n\tb: 2", "RuntimeError: sizes differ a: 1 b: 2"),
    ],
)
def test_the_last_error_is_one_line(error: str, expected: str) -> None:
    assert last_error(f"Loading\n{FRAMES}{error}\n") == expected


def test_an_error_of_another_process_is_the_last_line_of_its_text() -> None:
    text = f"The actor died\n{FRAMES}handlers.errors.WrongConfig: mode: is 'x'.\n"
    assert last_line(text) == "mode: is 'x'."


def test_the_last_error_of_a_chain_is_returned() -> None:
    assert last_error(f"{FRAMES}KeyError: 'x'\n{CHAIN}{FRAMES}ValueError: y\n") == "ValueError: y"


@pytest.mark.parametrize(
    "extra",
    [
        "ModuleNotFoundError: No module named 'ts.torch_handler.transformers_handler'",
        "RuntimeError: 500 - Unknown exception",
    ],
)
def test_follow_up_errors_of_torchserve_are_skipped(extra: str) -> None:
    log = f"{FRAMES}ImportError: no captum\nBackend worker process died.\n{CHAIN}{FRAMES}{extra}\n"

    assert last_error(log) == "ImportError: no captum"


@pytest.mark.parametrize("log", ["", "all is well", FRAMES])
def test_a_log_without_a_complete_traceback_has_no_error(log: str) -> None:
    assert last_error(log) is None
