"""Modules that an import is not to find."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from logging import ERROR, getLogger
from typing import Any

from handlers.errors import WrongConfig
from handlers.telemetry.log_levels import silence_imported


@contextmanager
def hide_packages(*names: str, unheard: str) -> Iterator[None]:
    """Let imports within find modules missing, as where they are not installed.

    What is imported already is left. The logger `unheard` may not complain meanwhile.
    """
    logger, hidden = getLogger(unheard), [name for name in names if name not in sys.modules]
    level = logger.level
    logger.setLevel(ERROR)
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: not to be found
    try:
        yield
    finally:
        logger.setLevel(level)
        for name in hidden:
            del sys.modules[name]


# AWS's own: of these names the public index has empty packages, or none.
NEURON_INDEX = "https://pip.repos.neuron.amazonaws.com"
INSTALL = {
    "onnxruntime": "pip install onnxruntime",
    "onnxscript": "pip install onnx onnxscript onnxruntime",
    "optimum.intel.openvino": "pip install openvino openvino-tokenizers nncf, and optimum and"
    " optimum-intel with --no-deps",
    "openvino": "pip install openvino",
    "nncf": "pip install nncf",
    "torch_neuronx": f"pip install --extra-index-url {NEURON_INDEX} neuronx-cc torch-neuronx",
    "torch_neuron": f"pip install --extra-index-url {NEURON_INDEX} neuron-cc torch-neuron",
}


def require_package(package: str, reason: str) -> Any:
    """Return a package's module, and keep what it brought along quiet.

    Raises:
        WrongConfig: it is not installed; the text says what asks for it, and how to get it.
    """
    try:
        module = import_module(package)
    except ImportError as error:
        raise WrongConfig(
            reason, f"needs {package}, which does not import ({error})", INSTALL[package]
        ) from None
    silence_imported()
    return module
