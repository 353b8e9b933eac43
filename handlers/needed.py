"""Packages that only some YAMLs need."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from handlers.errors import WrongConfig
from handlers.quiet import quieten_imported

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


def needed(package: str, reason: str) -> Any:
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
    quieten_imported()
    return module
