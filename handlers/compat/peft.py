"""What is private or undocumented in peft, whose import takes seconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

NO_ADAPTER = "__base__"


def lora_layers(module: torch.nn.Module) -> list[Any]:
    """Return the layers of a module that have adapters.

    Breaks when `LoraLayer` is not the base class of all of them.
    """
    from peft.tuners.lora import LoraLayer  # noqa: PLC0415

    return [layer for layer in module.modules() if isinstance(layer, LoraLayer)]


def activate_adapters(layer: Any, names: Sequence[str]) -> None:
    """Have a layer compute all rows with adapters, or with none.

    Breaks when `LoraLayer.set_adapter` has no `inference_mode`.
    """
    layer.set_adapter(list(names), inference_mode=True)


def choose_adapters_of_rows(
    layer: torch.nn.Module, names: Callable[[], Sequence[str | None] | None]
) -> None:
    """Have a layer ask for the adapter of each row before each forward.

    Args:
        names: returns the name of each row's adapter, None for no adapter; or None where all rows
            have the active one.

    Breaks when layers take no `adapter_names`, or call no adapter otherwise than `__base__`.
    """

    def add_names(
        _layer: torch.nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        if (adapters := names()) is None:
            return None
        return inputs, {**named, "adapter_names": [name or NO_ADAPTER for name in adapters]}

    layer.register_forward_pre_hook(add_names, with_kwargs=True)
