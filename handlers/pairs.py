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
