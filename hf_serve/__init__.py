"""Serves Hugging Face models on TorchServe.

`hf_serve.handlers` is the package that goes into each archive, `hf_serve.hosts` are other servers
of archives, and `hf_serve.scripts` are the commands.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hf_serve.hosts.notebook import Engine

__all__ = ["Engine"]


def __getattr__(name: str) -> Any:
    # The engine imports torch, which most commands do not need.
    if name == "Engine":
        return import_module("hf_serve.hosts.notebook").Engine
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
