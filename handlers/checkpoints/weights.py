"""The files with the weights of a checkpoint: of a repository, a folder or an archive.

Names in the files of a checkpoint, such as those of an index of shards, are its author's: each must
be that of weights beside the file that names it, in its own format.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from pydantic import BaseModel, Field, ValidationError

from handlers.checkpoints.folder_kinds import missing_weights
from handlers.config.quoting import quote
from handlers.errors import WrongCheckpoint

SAFETENSORS = ("model.safetensors", "model.safetensors.index.json")
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
INDEX = ".index.json"
# transformers loads an adapter beside a model by itself.
ADAPTER = "adapter_config.json"


class ShardIndex(BaseModel):
    """The index of sharded weights: the file of each parameter."""

    weight_map: dict[str, str] = Field(min_length=1)


def weights_file(
    names: Collection[str],
    place: str,
    *,
    allow_pickle: bool,
    read: Callable[[str], Path] | None = None,
) -> str:
    """Return the file with the weights, or the index file of sharded weights.

    Args:
        names: the names of all files of a repository or folder.
        place: the repository or folder, for errors.
        allow_pickle: `handler.allow_pickle`.
        read: returns the path of one of its files, for what an error says of them.

    Raises:
        WrongCheckpoint: there are no weights, or only pickles, which are not allowed.
    """
    safe = [name for name in SAFETENSORS if name in names]
    pickled = [name for name in PICKLES if name in names]
    if not safe and not pickled:
        raise missing_weights(names, place, read)
    if not safe and not allow_pickle:
        raise WrongCheckpoint(
            place,
            f"has its weights only as pickles ({pickled[0]}), which can execute code when loaded",
            "use a checkpoint or a handler.revision with safetensors, or, if you trust its author,"
            " set handler.allow_pickle: true",
        )
    return (safe or pickled)[0]


def shard_files(weights: Path, names: Collection[str], place: str) -> list[str]:
    """Return the shards listed by an index file; none if the weights are a single file.

    Raises:
        WrongCheckpoint: the index is invalid, or lists anything but weights beside it.
    """
    if weights.suffix != ".json":
        return []
    try:
        index = ShardIndex.model_validate_json(weights.read_bytes())
    except ValidationError:
        raise WrongCheckpoint(
            place, f"{weights.name} is not an index of shards", "set another handler.revision"
        ) from None
    suffix = Path(weights.name.removesuffix(INDEX)).suffix
    beside = {name for name in names if Path(name).name == name and name.endswith(suffix)}
    listed = sorted(set(index.weight_map.values()))
    missing = [shard for shard in listed if shard not in beside]
    if missing:
        raise WrongCheckpoint(
            place,
            f"{weights.name} lists {missing[0]!r:.80}, and no such {suffix} file is beside it",
            "use a checkpoint or a handler.revision whose shards are beside their index",
        )
    return listed


def check_weights(folder: Path, config: object, *, allow_pickle: bool) -> None:
    """Check that transformers reads nothing but allowed weights in a folder.

    Args:
        folder: the checkpoint.
        config: its config, which can name another file with the weights.
        allow_pickle: `handler.allow_pickle`.

    Raises:
        WrongCheckpoint: there are only pickles, which are not allowed; an index, or the config,
            names anything but weights beside it; or an adapter is beside the model.
    """
    names = {path.name for path in folder.iterdir() if path.is_file()}
    if ADAPTER in names:
        raise WrongCheckpoint(
            str(folder),
            f"has an adapter beside the model ({ADAPTER}), which would change it",
            "move the adapter to a folder of its own, and name that in handler.adapters",
        )
    named = getattr(config, "transformers_weights", None)
    if named is None:
        weights = weights_file(names, str(folder), allow_pickle=allow_pickle)
    elif named in names and named.removesuffix(INDEX).endswith(".safetensors"):
        weights = named
    else:
        raise WrongCheckpoint(
            "config.json",
            f"has transformers_weights {quote(named)}, which are no safetensors beside it",
            "use a checkpoint whose weights are beside its config.json",
        )
    shard_files(folder / weights, names, str(folder))


def check_components(folder: Path) -> None:
    """Check the indexes of shards in the folders of the components of a pipeline.

    Raises:
        WrongCheckpoint: one lists anything but weights beside it.
    """
    for index in sorted(folder.glob(f"*/*.safetensors{INDEX}")):
        names = {path.name for path in index.parent.iterdir() if path.is_file()}
        shard_files(index, names, f"{folder}/{index.parent.name}")
