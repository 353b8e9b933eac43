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
from tests.catalogue import tokenizer_kinds
from tests.catalogue.sizes import ADDED, SAME, SIDE, SIZES, VALUES

CONFIG, PICKLE = "config.json", ".pt"
# Keys of a config that depend on the tokenizer.
OF_TOKENIZER = ("vocab_size", "_token_id")
# Parts of a config that have a config, other than those whose names end like this.
PART = "_config"
PARTS = ("encoder", "decoder")
# The size of a token's vector.
WIDTHS = ("hidden_size", "d_model", "dim", "n_embd")
# Weights are within it. Those of a convolution and of a vector are within this part of it.
MOST, MOST_OF_CONVOLUTIONS, MOST_OF_VECTORS = 0.8, 0.4, 0.2


def write(entry: CatalogueEntry, folder: Path, *, weights: bool = True) -> Path:
    """Write the tiny checkpoint of an entry.

    Args:
        entry: the entry.
        folder: the folder, which is created.
        weights: whether the weights are those of a model; otherwise they fit nothing, as those of
            an entry that is refused.
    """
    folder.mkdir(parents=True, exist_ok=True)
    published = entry.checkpoint
    config = shrink(published.config)
    config = _adapt(config, write_tokenizer(published.tokenizer, folder))
    _write(folder / CONFIG, config)
    hidden = next((published.config[key] for key in WIDTHS if key in published.config), 1)
    for name, content in published.files.items():
        if name.endswith(PICKLE):
            _write_linear(folder / name, shrink_file(name, content, hidden))
        else:
            _write(folder / name, shrink_file(name, content, hidden))
    if published.hub_task:
        _write(folder / "README.md", f"---\npipeline_tag: {published.hub_task}\n---\n")
    if entry.refused or not weights:
        save_file({"weight": np.zeros(4, np.float32)}, folder / "model.safetensors")
        return folder
    save_weights(make_model(config), folder, _projection(folder, config))
    for path in folder.glob("*_Dense/config.json"):
        _write_dense(path.parent)
    return folder


def shrink(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config with small sizes and the same keys, in each of its parts."""
    family = str(config.get("model_type"))
    sizes = {**SIZES, **VALUES.get(family, {})}
    return {key: _shrunk(key, value, sizes) for key, value in config.items()} | ADDED.get(
        family, {}
    )


def _shrunk(key: str, value: Any, sizes: Mapping[str, Any]) -> Any:
    if isinstance(value, Mapping) and (key.endswith(PART) or key in PARTS):
        return shrink(value)
    if key == "layer_types":
        return [*value[:3], value[-1]]
    return value if value is None else sizes.get(key, value)


def shrink_file(name: str, content: Any, hidden: int) -> Any:
    """Return the content of a file with sizes that fit the config.

    Args:
        name: its name.
        content: its content.
        hidden: the published size of the vectors of tokens.
    """
    if not isinstance(content, Mapping):
        return content
    if name == "preprocessor_config.json":
        return {key: _side(key, value) for key, value in content.items()}
    keys = ("in_features", "out_features", "word_embedding_dimension", "dim")
    is_module = name.endswith((f"/{CONFIG}", PICKLE)) or name == "artifact.metadata"
    return {
        key: max(1, round(value / hidden * SIZES["hidden_size"]))
        if is_module and key in keys
        else value
        for key, value in content.items()
    }


def write_tokenizer(kind: str | None, folder: Path) -> dict[str, Any]:
    """Write a tokenizer of a kind; returns the values of a config that depend on it."""
    if kind is None:
        return {}
    found = tokenizer_kinds.write(kind, folder)
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text(encoding="utf-8"))
    _write(path, {**settings, "model_max_length": SIZES["max_position_embeddings"]})
    return found


def make_model(config: Mapping[str, Any]) -> torch.nn.Module:
    """Return a model of the architecture of a config."""
    values = {key: value for key, value in config.items() if key != "transformers_version"}
    made = AutoConfig.for_model(**values)
    name = made.architectures[0]
    kind = getattr(transformers, name, None) or transformers.AutoModel._model_mapping[type(made)]
    model: torch.nn.Module = kind(made).eval()
    return model


def save_weights(
    model: torch.nn.Module, folder: Path, more: Mapping[str, Any] | None = None
) -> None:
    """Write seeded weights for a model, each of which depends on its name alone."""
    buffers = {name for name, _ in model.named_buffers()}
    weights = {
        name: _weight(name, parameter) for name, parameter in sorted(model.named_parameters())
    }
    weights |= {name: each.numpy() for name, each in model.state_dict().items() if name in buffers}
    save_file({**weights, **(more or {})}, folder / "model.safetensors", metadata={"format": "pt"})


def _adapt(config: dict[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config with the values that depend on the tokenizer, in each of its parts."""
    return {
        key: _adapt(value, values)
        if isinstance(value, dict) and (key.endswith(PART) or key in PARTS)
        else values[key]
        if key in values and key.endswith(OF_TOKENIZER) and value is not None
        else value
        for key, value in config.items()
    }


def _weight(name: str, parameter: torch.Tensor) -> Any:
    """Return uniform numbers; those of a norm are near one, and those of a bias near zero."""
    values = parameter.detach().numpy()
    if values.ndim < 2 and np.ptp(values) == 0:
        return np.asarray(values + MOST_OF_VECTORS * _uniform(name, *values.shape), np.float32)
    share = MOST_OF_CONVOLUTIONS if values.ndim > 2 else 1
    return np.asarray(share * _uniform(name, *values.shape), np.float32)


def _projection(folder: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the projection of a ColBERT, which is among the weights of the model."""
    path = folder / "artifact.metadata"
    if not path.is_file():
        return {}
    size = json.loads(path.read_text(encoding="utf-8"))["dim"]
    return {"linear.weight": _uniform("linear.weight", size, config["hidden_size"])}


def _write_dense(folder: Path) -> None:
    config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    sizes = config["out_features"], config["in_features"]
    weights = {"linear.weight": _uniform(str(folder.name), *sizes)}
    if config["bias"]:
        weights["linear.bias"] = _uniform("bias", 1, sizes[0])[0]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def _write_linear(path: Path, sizes: Mapping[str, int]) -> None:
    """Write a layer of bge-m3 as FlagEmbedding does: the state of a module of torch."""
    size, hidden = sizes["out_features"], sizes["in_features"]
    weights = {"weight": _uniform(path.name, size, hidden), "bias": _uniform("bias", 1, size)[0]}
    torch.save({name: torch.from_numpy(each) for name, each in weights.items()}, path)


def _uniform(name: str, *shape: int) -> Any:
    return np.asarray(_random(name).random(shape) * 2 * MOST - MOST, np.float32)


def _side(key: str, value: Any) -> Any:
    """Return a size of images or sounds; a size of images is a number, two or a mapping."""
    if isinstance(value, list) and key == "size":
        return [SIDE[key]["number"]] * 2
    if key not in SIDE or value in (None, SAME.get(key)):
        return value
    kind = " ".join(sorted(value)) if isinstance(value, Mapping) else "number"
    return SIDE[key].get(kind, value)


def _write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, str) else json.dumps(content, indent=1)
    path.write_text(text, encoding="utf-8")


def _random(name: str) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(crc32(name.encode())))
