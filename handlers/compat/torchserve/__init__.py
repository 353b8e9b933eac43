"""What is private or undocumented in TorchServe, by subject."""

from __future__ import annotations

from contextlib import AbstractContextManager

from handlers.compat.imports import hide_packages


def without_openvino_backend() -> AbstractContextManager[None]:
    """Import the base handler within the block without OpenVINO's backend of `torch.compile`.

    The base handler imports the backend if OpenVINO is installed, and with it the whole compiler,
    which adds 5 seconds to every start. torch finds the backend without that import.

    Breaks when the base handler imports the backend in another way.
    """
    return hide_packages("openvino.torch", silence="ts.torch_handler.base_handler")
