"""Imports of optional packages, and the log levels of libraries.

Progress bars and reports of libraries would fill the log of a worker.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from logging import CRITICAL, ERROR, getLogger
from typing import Any

from transformers.utils import logging

from ..compat.imports import hide_incompatible
from ..compat.openvino import disable_usage_reports, keep_signal_stacks
from ..compat.torchserve import drop_receipts
from ..errors import WrongConfig


def require_package(package: str, reason: str, install: str) -> Any:
    """Import an optional package and limit the loggers of export libraries to errors.

    Raises:
        WrongConfig: the package is not installed or cannot be imported.
    """
    disable_usage_reports()
    try:
        with hide_incompatible(package):
            module = import_module(package)
    except ImportError as error:
        raise WrongConfig(
            reason, f"needs {package}, which does not import ({error})", install
        ) from None
    silence_imported()
    if "openvino" in sys.modules:
        keep_signal_stacks()
    return module


def is_installed(package: str) -> bool:
    """Return whether an optional package is installed; it is not imported itself."""
    try:
        # The package that it is a part of is imported.
        with hide_incompatible(package):
            return find_spec(package) is not None
    except ImportError:  # The package that it is a part of is not installed.
        return False


@contextmanager
def silence_exporters() -> Iterator[None]:
    """Suppress warnings and log records of exporters within the block; errors are raised."""
    silence_libraries()
    for name in ("torch.onnx", "torch.export"):
        getLogger(name).setLevel(ERROR)
    # OpenVINO logs as an error that it converts a model without wrapping it first.
    getLogger("openvino.frontend.pytorch.utils").setLevel(CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def silence_libraries() -> None:
    """Limit transformers, bitsandbytes and Captum to errors; TorchServe logs every printed line."""
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    # bitsandbytes logs a cast for every 8-bit matrix of every batch.
    getLogger("bitsandbytes").setLevel(ERROR)
    # transformers' continuous batching logs each text.
    getLogger("ContinuousBatchingLogger").setLevel(ERROR)
    for module in ("transformers", "captum"):
        warnings.filterwarnings("ignore", module=module)
    drop_receipts()


def silence_imported() -> None:
    """Limit export libraries to errors; each sets its log level when it is imported.

    Loggers of libraries that are not imported are left alone: NNCF creates its logger with a
    custom class, which fails if the logger exists.
    """
    for name in ("optimum", "nncf", "openvino"):
        if name in sys.modules:
            getLogger(name).setLevel(ERROR)
