"""Tiny LoRA adapters, seeded, as peft saves them; large enough that texts are other ones."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

from hf_serve.handlers.types.request import Request

SETTINGS: dict[str, Any] = {"task_type": "CAUSAL_LM", "r": 4, "target_modules": "all-linear"}


def write(
    folder: Path,
    base: Path,
    *,
    seed: int,
    load: Callable[[Path], Any] = AutoModelForCausalLM.from_pretrained,
    **settings: Any,
) -> Path:
    """Write an adapter of a checkpoint.

    Args:
        folder: the folder of the adapter, which is created.
        base: the folder of the checkpoint.
        seed: the seed of the weights.
        load: loads the checkpoint, with the head of the adapter.
        settings: values of peft's `LoraConfig`.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the transposed weights of GPT-2
        model = load(base)
        adapted = get_peft_model(model, LoraConfig(**{**SETTINGS, **settings}))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_" in name or "modules_to_save" in name:
                parameter.uniform_(-0.7, 0.7, generator=generator)
    adapted.save_pretrained(folder)
    return folder


def merged(base: Path, adapter: Path) -> Any:
    """Return the checkpoint with an adapter in its weights, as transformers and peft make it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
        return PeftModel.from_pretrained(model, adapter).merge_and_unload()


def request(inputs: Any, adapter: str | None, **parameters: Any) -> Request:
    """Return a request that chooses an adapter."""
    return Request(inputs, {**parameters, "adapter_id": adapter})
