"""Which mode goes with which format."""

from __future__ import annotations

from handlers.words import formats


def check_pair(mode: str, save_mode: str) -> None:
    """Check that a format can do what a mode needs.

    Raises:
        ValueError: it cannot; the text says which can.
    """
    # Imported here, since these know this module, and only few YAMLs need it.
    from handlers.registry import format_module, task_class  # noqa: PLC0415

    if task_class(mode).generates and not format_module(save_mode).GENERATES:
        able = [name for name in formats() if format_module(name).GENERATES]
        raise ValueError(
            f"handler.mode is {mode} and handler.save_mode is {save_mode}, which cannot generate"
            f"; use save_mode: {' or '.join(able)}"
        )


def check_quantization(mode: str, save_mode: str, how: str) -> None:
    """Check that a format can be quantized so, for a mode.

    Raises:
        ValueError: it cannot; the text says what can.
    """
    from handlers.registry import task_class  # noqa: PLC0415

    if save_mode != "openvino":
        raise ValueError(
            f"handler.quantization is {how} and handler.save_mode is {save_mode}"
            "; use save_mode: openvino, or leave quantization out"
        )
    if how == "int8" and task_class(mode).generates:
        raise ValueError(
            f"handler.mode is {mode}, which cannot be calibrated for quantization: int8"
            "; use int8_weights or int4_weights"
        )
