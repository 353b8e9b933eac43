"""What the download of a GLiNER adds to its files: what an early one lacks, and safetensors."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import torch
from safetensors.torch import save_file

from hf_serve.handlers.checkpoints.checkpoint import TOKENIZER_FILES
from hf_serve.handlers.checkpoints.checkpoint_files import CONFIG, GLINER, PICKLES, SAFETENSORS
from hf_serve.handlers.checkpoints.gliner import GlinerConfig
from hf_serve.handlers.checkpoints.sentence_transformers import read_model
from hf_serve.handlers.errors import WrongCheckpoint, summarize
from hf_serve.scripts.hub.checkpoint_files import root_config_files
from hf_serve.scripts.hub.client import Hub

TOKENIZERS = ("tokenizer*", "special_tokens_map.json", "added_tokens.json", *TOKENIZER_FILES)
PICKLE, SAFE = PICKLES[0], SAFETENSORS[0]


def add_base_files(folder: Path, hub: Hub) -> list[str]:
    """Download what an early checkpoint lacks, from the model that its encoder was made from.

    Returns:
        The names of the files.

    Raises:
        HubError: the hub or that model is not available.
        WrongCheckpoint: its `gliner_config.json` is damaged.
    """
    head = read_model(folder / GLINER, GlinerConfig)
    needs_config = head.encoder_config is None and not (folder / CONFIG).is_file()
    present = (path.name for path in folder.iterdir())
    needs_tokenizer = not any(_matches(name, TOKENIZER_FILES) for name in present)
    if not (needs_config or needs_tokenizer) or not head.model_name:
        return []
    snapshot = hub.snapshot(head.model_name, None)
    wanted = [
        name
        for name in root_config_files(snapshot.files)
        if (needs_config and name == CONFIG) or (needs_tokenizer and _matches(name, TOKENIZERS))
    ]
    for name in wanted:
        hub.fetch(snapshot, snapshot.files[name], folder)
    return wanted


def convert_pickle(folder: Path) -> None:
    """Write the weights of a pickle as safetensors, and remove it.

    Nothing in it is executed: a pickle with anything but tensors is refused.

    Raises:
        WrongCheckpoint: it is such a pickle.
    """
    path = folder / PICKLE
    try:
        weights = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        save_file(dict(_separate(weights)), folder / SAFE, metadata={"format": "pt"})
    except Exception as error:  # noqa: BLE001 - torch raises errors of many kinds for damaged files
        raise WrongCheckpoint(
            PICKLE,
            f"cannot be converted to safetensors ({summarize(error)})",
            "use a checkpoint or a handler.revision with safetensors",
        ) from None
    path.unlink()


def _separate(weights: dict[str, torch.Tensor]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield tensors that share no memory, of which safetensors takes no two."""
    seen = set[int]()
    for name, tensor in weights.items():
        pointer = tensor.untyped_storage().data_ptr()
        yield name, (tensor.clone() if pointer in seen else tensor).contiguous()
        seen.add(pointer)


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
