"""How a command ends when something goes wrong: with a sentence, and without a traceback.

This module imports nothing of `handlers`, as :mod:`hf_serve.hosts.archives` does not.
"""

from __future__ import annotations

import errno
import os
import shlex
import sys
import textwrap
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

ROOT = Path(__file__).resolve().parents[1]
TRACEBACK = "SHOW_TRACEBACK"
INTERRUPTED = 130
CLOSED_OUTPUT = 141  # as of a program that SIGPIPE ends
# Errors whose message is a sentence for users. They are known by name, because the `KitError` of an
# archive's `handlers` is another class than the `KitError` of this folder.
WITH_SENTENCE = frozenset({"KitError", "ArchiveError", "WrongLocale", "WrongMar"})

FULL = "free disk space"
NOT_YOURS = "name a folder that you may read and write, or correct its permissions"
# What a user does about errors of the system that no command can know before.
REMEDIES = {
    errno.EACCES: NOT_YOURS,
    errno.EPERM: NOT_YOURS,
    errno.EROFS: NOT_YOURS,
    errno.ENOSPC: FULL,
    errno.EDQUOT: FULL,
    errno.EMFILE: "raise the limit of open files with `ulimit -n 65536`",
}


@contextmanager
def plain_errors() -> Iterator[None]:
    """End the process with a sentence on stderr where the block, or the decorated command, raises.

    The exit code is 1, 130 for an interrupt, and 141 where nothing reads the output any more. With
    `SHOW_TRACEBACK=1` in the environment the traceback comes first.
    """
    try:
        _require_utf_8()
        yield
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except KeyboardInterrupt:
        typer.echo("Interrupted.", err=True)
        raise SystemExit(INTERRUPTED) from None
    except BrokenPipeError:
        # What reads the output, such as `head`, has ended; Python would write the rest at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(CLOSED_OUTPUT) from None
    except Exception as error:  # noqa: BLE001 - no command ends in a traceback
        if os.environ.get(TRACEBACK):
            traceback.print_exc()
        typer.echo(sentence_of(error), err=True)
        raise SystemExit(1) from None


def module_command(module: str, *arguments: object) -> list[str]:
    """Return the command that runs a module of the kit from the folder of a user.

    Python would import files of that folder, such as a `yaml.py`, in place of packages. In the
    repository itself, the kit may be there alone.
    """
    safe = [] if Path.cwd() == ROOT else ["-P"]
    return [sys.executable, *safe, "-m", module, *map(str, arguments)]


class WrongLocale(Exception):
    """A path of the command has letters that the locale of the process lacks."""

    def __init__(self, text: str) -> None:
        super().__init__(
            f"{text!a} has letters other than ASCII, and the locale writes paths in"
            f" {sys.getfilesystemencoding()}; set PYTHONUTF8=1 or LC_ALL=C.UTF-8."
        )


def _require_utf_8() -> None:
    """Check that libraries find the paths of the command, which they write in UTF-8.

    Raises:
        WrongLocale: one has other bytes there.
    """
    if sys.getfilesystemencoding() == "utf-8":
        return
    for text in (*sys.argv[1:], str(Path.cwd())):
        if not text.isascii():
            raise WrongLocale(text)


def sentence_of(error: Exception) -> str:
    """Return what a user reads of an error: its own sentence, or what failed, where and why."""
    if not WITH_SENTENCE.isdisjoint(each.__name__ for each in type(error).__mro__):
        return str(error)
    if isinstance(error, OSError) and error.errno in REMEDIES:
        # Of a copy the second file is the one that is written.
        file = error.filename2 or error.filename
        named = f"{file}: " if file else ""
        return f"{named}{error.strerror}; {REMEDIES[error.errno]}."
    message = textwrap.shorten(str(error), 500, placeholder=" …")
    reason = f"{type(error).__name__}: {message}" if message else type(error).__name__
    return (
        f"`{_command()}` failed in {_place(error)}: {reason.removesuffix('.')}."
        f" {TRACEBACK}=1 in the environment shows the traceback."
    )


def _command() -> str:
    """Return the command line of this process, in the words of its user."""
    program = Path(sys.argv[0])
    name = program.parent.name if program.name == "__main__.py" else program.name
    return textwrap.shorten(shlex.join([name, *sys.argv[1:]]), 200, placeholder=" …")


def _place(error: Exception) -> str:
    """Return the innermost file and line of this repository that an error passed."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if Path(frame.filename).is_relative_to(ROOT)]
    frame = (own or frames)[-1]
    path = Path(frame.filename)
    return f"{path.relative_to(ROOT) if own else path.name}, line {frame.lineno}"
