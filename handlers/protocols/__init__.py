"""Wire formats: one file or package for each, with one class `Protocol`."""

from __future__ import annotations

from ..registry import PROTOCOLS
from ..types.model_info import ModelInfo
from . import describe
from .base import BaseProtocol
from .inference_code import InferenceCodeProtocol, StatusProtocol

# Protocols with paths that tell whether a model answers, which its own code does not read.
WITH_STATUS = ("openai", "open_inference", "text_embeddings_inference")


def kinds() -> list[type[BaseProtocol]]:
    """Return the class of each protocol, in the order in which they are tried.

    Protocols of other distributions come first: the last protocols here take every body.
    """
    return [PROTOCOLS.load(name) for name in (*sorted(PROTOCOLS.added), *PROTOCOLS.table)]


def create(model: ModelInfo) -> list[BaseProtocol]:
    """Return one instance of each protocol for a model; its own code reads each body by itself."""
    if model.inference_code:
        status = [StatusProtocol(PROTOCOLS.load(name)(model)) for name in WITH_STATUS]
        return [describe.Protocol(model), *status, InferenceCodeProtocol(model)]
    return [kind(model) for kind in kinds()]
