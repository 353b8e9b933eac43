"""Which mode, and which keys, go with which format."""

from __future__ import annotations

from typing import get_args

from handlers import tasks
from handlers.config.choices import save_modes
from handlers.config.handler_section import Hardware
from handlers.config.model_config import ModelConfig
from handlers.errors import WrongConfig

# The old example's formats; its YAMLs carry keys that not each of them reads.
OLD = ("pretrained", "torchscript")
# Formats that compute in float32, whatever the hardware has.
FLOAT32 = ("onnx",)


def check_config(config: ModelConfig) -> None:
    """Check that a mode, a format and their keys go together.

    Raises:
        WrongConfig: they do not; the text says which do.
    """
    handler = config.handler
    try:
        if handler.is_exported:
            check_pair(handler.mode, handler.save_mode)
        if handler.quantization:
            check_quantization(handler.mode, handler.save_mode, handler.quantization)
        check_dtype(handler.save_mode, handler.dtype)
        check_graph(handler.save_mode, handler.batch_size, compiles=config.pt2.compile.enable)
        check_responses(handler.mode, handler.responses)
    except ValueError as error:
        problem, _, remedy = str(error).partition("; ")
        raise WrongConfig(config.source, problem, remedy) from None


def check_responses(mode: str, responses: str | None) -> None:
    """Check that TorchServe's old example had a mode with `responses: legacy`.

    Raises:
        ValueError: it had not.
    """
    if responses and tasks.get(mode).legacy_response is None:
        raise ValueError(
            f"has responses: legacy and mode: {mode}, which the old example had not"
            "; leave responses out"
        )


def check_pair(mode: str, save_mode: str) -> None:
    """Check that a format can do what a mode needs.

    Raises:
        ValueError: it cannot; the text says which can.
    """
    # Imported here, since these know this module, and only few YAMLs need it.
    from handlers import (
        formats,
        tasks,
    )

    if tasks.get(mode).generates and not formats.get(save_mode).GENERATES:
        able = [name for name in save_modes() if formats.get(name).GENERATES]
        raise ValueError(
            f"handler.mode is {mode} and handler.save_mode is {save_mode}, which cannot generate"
            f"; use save_mode: {' or '.join(able)}"
        )


def check_quantization(mode: str, save_mode: str, how: str) -> None:
    """Check that a format can be quantized so, for a mode.

    Raises:
        ValueError: it cannot; the text says what can.
    """
    if save_mode != "openvino":
        raise ValueError(
            f"handler.quantization is {how} and handler.save_mode is {save_mode}"
            "; use save_mode: openvino, or leave quantization out"
        )
    if how == "int8" and tasks.get(mode).generates:
        raise ValueError(
            f"handler.mode is {mode}, which cannot be calibrated for quantization: int8"
            "; use int8_weights or int4_weights"
        )


def check_dtype(save_mode: str, dtype: str) -> None:
    """Check that a format can compute in what a YAML names; `auto` is what it can.

    Raises:
        ValueError: it cannot; the text says which can.
    """
    if save_mode in FLOAT32 and dtype not in ("float32", "auto"):
        raise ValueError(
            f"handler.dtype is {dtype} and handler.save_mode is {save_mode}, which computes in"
            " float32; use save_mode: pretrained or openvino, or leave dtype out"
        )


def computes_in(save_mode: str, dtype: str) -> str:
    """Return what a model of a format computes in, where its YAML says `dtype`."""
    return "float32" if save_mode in FLOAT32 else dtype


def check_graph(save_mode: str, batch_size: int | None, *, compiles: bool) -> None:
    """Check that a YAML sets neither rows nor a compiler for a graph that has no use for them.

    Raises:
        ValueError: it does; the text says what is meant for that.
    """
    if batch_size is not None and save_mode not in (*OLD, *get_args(Hardware)):
        raise ValueError(
            f"handler.batch_size is {batch_size} and handler.save_mode is {save_mode}, which takes"
            " any number of rows; use batchSize, TorchServe's own key, or leave it out"
        )
    if compiles and save_mode not in OLD:
        raise ValueError(
            f"pt2.compile is enabled and handler.save_mode is {save_mode}, which torch does not"
            " compile; use save_mode: pretrained, or leave pt2 out"
        )
