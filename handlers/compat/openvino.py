"""What is private or undocumented in OpenVINO's packages and optimum-intel.

Programs run this file without the kit on their path, so that it imports nothing of it.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from importlib import import_module
from typing import Any, ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
# The methods of `Core` with which it loads the plugin of the CPU.
LOADING = ("compile_model", "import_model", "query_model", "get_property", "set_property")


def disable_usage_reports() -> None:
    """Have OpenVINO's packages, when they are imported, send no reports of their use to Intel.

    They would send one with each import and each export, to Google Analytics, from a fork of the
    process. It must be called before they are imported.

    Breaks when they send reports without the package `openvino_telemetry`, or require it.
    """
    sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]  # makes an import fail


class _SignalStack(ctypes.Structure):
    """`stack_t` of signal.h."""

    _fields_ = (
        ("address", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("size", ctypes.c_size_t),
    )


def keep_signal_stacks() -> None:
    """Have a thread keep the stack of its signal handlers when it loads OpenVINO's plugin.

    The plugin of each `Core` gives the thread another stack, and frees it at its end. If it ends in
    another thread, or before a plugin that was loaded later, the next signal that Python handles,
    such as Ctrl-C, ends the process with a segmentation fault.

    Breaks when `Core` loads the plugin with a method that `LOADING` lacks, or the plugin needs its
    stack.
    """
    core = import_module("openvino").Core
    if hasattr(core.compile_model, "__wrapped__"):
        return
    for name in LOADING:
        setattr(core, name, _keeping_signal_stack(getattr(core, name)))
    devices = core.available_devices.fget
    core.available_devices = property(_keeping_signal_stack(devices))


def _keeping_signal_stack(
    function: Callable[Arguments, Result],
) -> Callable[Arguments, Result]:
    libc = ctypes.CDLL(None)

    @wraps(function)
    def keep(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        own = _SignalStack()
        libc.sigaltstack(None, ctypes.byref(own))
        try:
            return function(*arguments, **named)
        finally:
            libc.sigaltstack(ctypes.byref(own), None)

    return keep


def tokenizer_operation() -> Callable[..., Any]:
    """Return the function that makes a node of a graph, of openvino_tokenizers' operations.

    Breaks when `_get_factory` of openvino_tokenizers is renamed or makes no nodes.
    """
    factory: Any = import_module("openvino_tokenizers")._get_factory()
    return factory.create


@contextmanager
def gemma_of_any_transformers() -> Iterator[None]:
    """Have optimum-intel export Gemma within the block with a transformers that it refuses.

    Breaks when `GemmaOpenVINOConfig` has no `MAX_TRANSFORMERS_VERSION`, or exports a wrong model:
    the export is compared with the checkpoint.
    """
    gemma = import_module("optimum.exporters.openvino.model_configs").GemmaOpenVINOConfig
    latest, gemma.MAX_TRANSFORMERS_VERSION = gemma.MAX_TRANSFORMERS_VERSION, None
    try:
        yield
    finally:
        gemma.MAX_TRANSFORMERS_VERSION = latest
