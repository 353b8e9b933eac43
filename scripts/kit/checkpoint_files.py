"""Which of a repository's files are needed: config, tokenizer and one set of weights."""

from __future__ import annotations

import json
from collections.abc import Collection
from fnmatch import fnmatch
from pathlib import Path

from handlers.errors import WrongCheckpoint

# No *.py, and no vocab.pkl or vocab.bin: these run code when they are read.
SETTINGS = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "bpe.codes",
    "*.model",
    "*.spm",
    "chat_template*",
)
SAFETENSORS = ("model.safetensors", "model.safetensors.index.json")
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")


def config_files(names: Collection[str], place: str) -> list[str]:
    """Return the config and tokenizer files among a repository's names.

    Raises:
        WrongCheckpoint: when there is no config.json.
    """
    if "config.json" not in names:
        raise WrongCheckpoint(
            place, "has no config.json", "name a checkpoint that transformers can load"
        )
    return sorted(name for name in names if any(fnmatch(name, known) for known in SETTINGS))


def weights_file(names: Collection[str], place: str, *, allow_pickle: bool) -> str:
    """Return the file that the weights begin with: the weights themselves or the shards' index.

    Raises:
        WrongCheckpoint: when there are none, or none but pickles and these are not allowed.
    """
    safe = [name for name in SAFETENSORS if name in names]
    pickled = [name for name in PICKLES if name in names]
    if not safe and not pickled:
        raise WrongCheckpoint(
            place,
            "has no weights that transformers loads (model.safetensors)",
            "name a checkpoint or a handler.revision that has them",
        )
    if not safe and not allow_pickle:
        raise WrongCheckpoint(
            place,
            f"has its weights only as pickles ({pickled[0]}), which can run code when they load",
            "name a checkpoint or a handler.revision with safetensors, or, if you trust its author,"
            " set handler.allow_pickle: true",
        )
    return (safe or pickled)[0]


def shard_files(weights: Path, names: Collection[str], place: str) -> list[str]:
    """Return the shards that an index file lists; none where the weights are one file.

    Raises:
        WrongCheckpoint: when the index cannot be read or lists a file that is not there.
    """
    if weights.suffix != ".json":
        return []
    try:
        listed = sorted(set(json.loads(weights.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, AttributeError, TypeError):
        raise WrongCheckpoint(
            place, f"{weights.name} is no index of shards", "name another handler.revision"
        ) from None
    missing = [shard for shard in listed if shard not in names or Path(shard).name != shard]
    if missing:
        raise WrongCheckpoint(
            place,
            f"{weights.name} lists {missing[0]}, which is not there",
            "name another handler.revision",
        )
    return listed
