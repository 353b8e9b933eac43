"""`torchrun` with `parallelType: tp`: every matrix of one model over several processes."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import torch
from transformers import PreTrainedConfig
from transformers.distributed import DistributedConfig

from handlers.errors import WrongConfig
from handlers.runtime import ranks


def check_can_split(config: PreTrainedConfig, processes: int) -> None:
    """Check that transformers knows how to split a model, and that it goes into equal parts.

    Raises:
        WrongConfig: it does not; the text says what else there is.
    """
    text = config.get_text_config()
    if not text.base_model_tp_plan:
        raise WrongConfig(
            "parallelType",
            f"is tp, and transformers has no plan to split a {config.model_type} over processes",
            "leave torchrun and parallelType out, or spread its layers with handler.device_map",
        )
    for name in ("num_attention_heads", "num_key_value_heads"):
        heads = getattr(text, name, None) or processes
        if heads % processes:
            raise WrongConfig(
                "torchrun.nproc-per-node",
                f"is {processes}, and the model's {name} is {heads}",
                f"use a number of processes that divides {heads}",
            )


def is_sharded() -> bool:
    """Tell whether this process holds one part of a model.

    Not so where torchrun did not start it: an archive is checked with the whole model.
    """
    return ranks.world_size() > 1


def part() -> dict[str, Any]:
    """Return what `from_pretrained` must be told so that it loads this process's part."""
    known = {field.name for field in fields(DistributedConfig)}
    if "tp_plan" in known:
        return {"distributed_config": DistributedConfig(tp_plan="auto")}
    return {"tp_plan": "auto"}


def device() -> torch.device:
    """Return where transformers puts this process's part: its own accelerator, if there is any."""
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return found or torch.device("cpu")
