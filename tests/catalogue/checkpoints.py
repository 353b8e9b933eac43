"""A tiny checkpoint of each entry of the catalogue: its files and keys, with small sizes.

The weights are the same on every machine, so that the library that defines the results of an entry
runs in an environment of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file
from transformers import AutoConfig

from hf_serve.scripts.hub.catalogue import CatalogueEntry
from tests import tiny_tokenizers
from tests.families import SIZES, VALUES
from tests.tiny import weight

CONFIG = "config.json"


def write(entry: CatalogueEntry, folder: Path) -> Path:
    """Write the tiny checkpoint of an entry; one that is refused has weights that fit nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    published = entry.checkpoint
    config = shrink(published.config)
    config |= write_tokenizer(published.tokenizer, folder, config)
    _write_json(folder / CONFIG, config)
    for name, content in published.files.items():
        _write(folder / name, content)
    if published.hub_task:
        _write(folder / "README.md", f"---\npipeline_tag: {published.hub_task}\n---\n")
    if entry.refused:
        save_file({"weight": np.zeros(4, np.float32)}, folder / "model.safetensors")
        return folder
    architecture = config["architectures"][0]
    save_weights(make_model(architecture, config), folder)
    return folder


def shrink(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config with small sizes and the same keys, in each of its parts."""
    family = config.get("model_type")
    sizes = {**SIZES, **VALUES.get(str(family), {})}
    return {
        key: shrink(value)
        if isinstance(value, Mapping) and key.endswith("_config")
        else sizes.get(key, value)
        for key, value in config.items()
    }


def write_tokenizer(kind: str | None, folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Write a tokenizer of a kind; returns the keys of the config that depend on it."""
    if kind is None:
        return {}
    found = getattr(tiny_tokenizers, f"write_{kind.replace('-', '_')}")(folder)
    values = found if isinstance(found, dict) else {"eos_token_id": found, "vocab_size": 400}
    return {key: value for key, value in values.items() if key in config}


def make_model(architecture: str, config: Mapping[str, Any]) -> torch.nn.Module:
    """Return a model of an architecture, with the weights that `weight` gives each name."""
    values = {key: value for key, value in config.items() if key != "transformers_version"}
    made: torch.nn.Module = getattr(transformers, architecture)(AutoConfig.for_model(**values))
    return made.eval()


def save_weights(model: torch.nn.Module, folder: Path) -> None:
    """Write seeded weights for a model."""
    weights = {
        name: weight(
            name, parameter, np.random.Generator(np.random.PCG64(crc32(name.encode()))), 0.8
        )
        for name, parameter in sorted(model.named_parameters())
    }
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def _write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, str):
        path.write_text(content, encoding="utf-8")
    else:
        _write_json(path, content)


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")


def _random(name: str) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(crc32(name.encode())))
