"""Tensor parallelism, `parallelType: tp` with `torchrun`: matrices split over processes."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import torch
from transformers import PreTrainedConfig
from transformers.distributed import DistributedConfig

from handlers.errors import WrongConfig
from handlers.process import ranks


def check_tensor_parallel(config: PreTrainedConfig, processes: int) -> None:
    """Check that transformers can split a model into equal parts.

    Args:
        config: the config of the checkpoint.
        processes: the number of parts.

    Raises:
        WrongConfig: the model type has no tensor parallel plan, or its attention heads cannot be
            divided by the number of processes.
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
    """Return whether this process holds one part of a model.

    Without torchrun, as when an archive is checked, a process holds the whole model.
    """
    return ranks.world_size() > 1


def tensor_parallel_arguments() -> dict[str, Any]:
    """Return the arguments of `from_pretrained` that load the part of this process."""
    # Releases of transformers differ in where they take the plan.
    if "tp_plan" in {field.name for field in fields(DistributedConfig)}:
        return {"distributed_config": DistributedConfig(tp_plan="auto")}
    return {"tp_plan": "auto"}


def device() -> torch.device:
    """Return the device of this process: its accelerator if there is one, else the CPU."""
    accelerator = (
        torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    )
    return accelerator or torch.device("cpu")
