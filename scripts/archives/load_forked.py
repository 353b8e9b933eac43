"""Load archives, each in a fork that has the packages: `python -I load_forked.py MODULES...`.

Runs like `load_isolated.py`, and imports the modules once, before it reads requests: a line of JSON
each, with the arguments of `load_isolated.py` and a file for the errors. It answers each with the
exit code of its fork. It ends without an answer where it cannot be forked safely.
"""

import gc
import importlib
import json
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from runpy import run_path

PROGRAM = Path(__file__).with_name("load_isolated.py")
COMPAT = Path(__file__).resolve().parents[2] / "handlers" / "compat"
TASKS = Path("/proc/self/task")
ISOLATED = run_path(str(PROGRAM))
OF_THE_KIT = ("handlers", "transformers_handler")


def import_modules(names: Sequence[str]) -> None:
    """Import modules as the handlers of an archive do, without what they do not need."""
    # Not imported by its name, so that nothing of this repository is in the forks.
    with run_path(str(COMPAT / "imports.py"))["hide_packages"]("sklearn", silence="transformers"):
        for name in names:
            importlib.import_module(name)


def is_forkable() -> bool:
    """Return whether this process has one thread; OpenBLAS ends its threads before a fork."""
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return len(list(TASKS.iterdir())) == 1


def has_own_packages(folder: Path) -> bool:
    """Return whether an archive has modules that the imports of this process would have seen."""
    imported = {name.partition(".")[0] for name in sys.modules}
    return any(
        name in imported or is_module
        for name, is_module in _modules(folder)
        if name not in OF_THE_KIT
    )


def _modules(folder: Path) -> Iterator[tuple[str, bool]]:
    """Yield the names that can be imported from a folder, and whether each has code."""
    for path in folder.iterdir():
        is_file = path.suffix in (".py", ".pyc", ".so")
        if is_file or path.is_dir():
            yield path.name.partition(".")[0], is_file or any(path.glob("*.py"))


def load(folder: str, trials: str, errors: str) -> int:
    """Load an archive in this process, a fork, and return its exit code."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for target, source in ((0, nothing), (1, nothing), (2, os.open(errors, os.O_WRONLY))):
        os.dup2(source, target)
    os.chdir(folder)
    sys.argv[:] = [str(PROGRAM), folder, trials]
    if has_own_packages(Path(folder)):
        os.execv(sys.executable, [sys.executable, "-I", "-B", *sys.argv])  # noqa: S606
    gc.enable()
    try:
        ISOLATED["load"](Path(folder), Path(trials))
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:  # noqa: BLE001 - as the interpreter does
        traceback.print_exc()
        return 1
    return 0


def main(names: Sequence[str]) -> None:
    """Import the modules, and answer requests until there are no more."""
    ISOLATED["hide_repository"]()
    gc.disable()
    import_modules(names)
    gc.freeze()
    if not is_forkable():
        return
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            # As a program ends, so that what the archive has opened is closed.
            sys.exit(load(*json.loads(line)))
        _pid, status = os.waitpid(pid, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
