"""What is private or undocumented in OpenVINO's packages and optimum-intel.

Programs run this file without the kit on their path, so that it imports nothing of it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any


def disable_usage_reports() -> None:
    """Have OpenVINO's packages, when they are imported, send no reports of their use to Intel.

    They would send one with each import and each export, to Google Analytics, from a fork of the
    process. It must be called before they are imported.

    Breaks when they send reports without the package `openvino_telemetry`, or require it.
    """
    sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]  # makes an import fail


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
