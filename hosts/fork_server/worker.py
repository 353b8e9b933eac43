"""Makes a fork of the server what an ordinary start of a worker would be."""

from __future__ import annotations

import gc
import importlib
import os
import random
import signal
import sys
from collections.abc import Callable, Mapping
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from hf_serve.hosts.fork_server.conditions import search_path
from hf_serve.hosts.fork_server.kernel import show_command
from hf_serve.hosts.fork_server.messages import MODEL_SCRIPT, WorkerRequest

KIT = "hf_serve"


def prepare(
    request: WorkerRequest, streams: list[int], base_path: list[str], added: Mapping[str, str]
) -> None:
    """Give this process what a worker is started with.

    Args:
        base_path: the module path of a Python that is started without `PYTHONPATH`.
        added: variables that imports have set.
    """
    for target, stream in enumerate(streams):
        os.dup2(stream, target)
        os.close(stream)
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update({**request.environment, **added})
    sys.argv[:] = request.arguments
    sys.orig_argv[:] = [sys.executable, *request.arguments]
    own = [] if sys.flags.safe_path else [str(Path(request.arguments[0]).resolve().parent)]
    sys.path[:] = own + list(dict.fromkeys([*search_path(request), *base_path]))
    importlib.invalidate_caches()
    show_command(sys.orig_argv, request.environment)
    reset_signals()
    reseed()
    gc.enable()


def reset_signals() -> None:
    """Handle signals as at the start of Python."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def reseed() -> None:
    """Have each worker draw other random numbers."""
    random.seed()
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()
    if torch := sys.modules.get("torch"):
        torch.default_generator.seed()


def run(script: str) -> None:
    """Run a script as `__main__`.

    A worker of TorchServe imports nothing of the kit but the `handlers` of its archive.
    """
    if Path(script).name != MODEL_SCRIPT:
        for name in [each for each in sys.modules if each.partition(".")[0] == KIT]:
            del sys.modules[name]
    main = ModuleType("__main__")
    vars(main).update(__file__=script, __loader__=SourceFileLoader("__main__", script))
    sys.modules["__main__"] = main
    code = compile(Path(script).read_bytes(), script, "exec", dont_inherit=True)
    exec(code, vars(main))  # noqa: S102 - it is what Python does


def call_when_loaded(done: Callable[[], None]) -> None:
    """Call a function once TorchServe's worker has loaded its model, or could not."""
    loader: Any = importlib.import_module("ts.model_loader").TsModelLoader
    load = loader.load

    def load_and_tell(*arguments: Any, **options: Any) -> Any:
        loader.load = load
        try:
            return load(*arguments, **options)
        finally:
            done()

    loader.load = load_and_tell
