"""What a folder is that is no checkpoint of transformers, and what to do with it.

People name the folder of an adapter, of a training or of another program's model. Its files tell
which it is, whichever of them is looked for first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from handlers.errors import WrongCheckpoint

CONFIG = "config.json"
ADAPTER = "adapter_config.json"
MODULES = "modules.json"
TRAINED = re.compile(r"checkpoint-(\d+)")
OLD_MODULE = re.compile(r"0_(?!StaticEmbedding)[A-Za-z]+")
OTHER_WEIGHTS = (
    (".gguf", "of llama.cpp", "serve it with llama.cpp, or the checkpoint that it was made from"),
    (".onnx", "of ONNX", "use the checkpoint that it was exported from"),
    (".h5", "of TensorFlow", "convert it with transformers 4: from_pretrained(…, from_tf=True)"),
    (".msgpack", "of Flax", "convert it with transformers 4: from_pretrained(…, from_flax=True)"),
)

Found = tuple[str, str]


def files_in(folder: Path) -> set[str]:
    """Return the names of the files of a folder and of the folders in it."""
    paths = (path for pattern in ("*", "*/*") for path in folder.glob(pattern) if path.is_file())
    return {path.relative_to(folder).as_posix() for path in paths}


def missing_config(
    names: Collection[str], place: str, read: Callable[[str], Path] | None = None
) -> WrongCheckpoint:
    """Return the error of a folder or repository without a `config.json`.

    Args:
        names: the names of its files, and of those in its folders.
        place: the folder or repository.
        read: returns the path of one of its files, where they are here.
    """
    kinds = (
        _adapter(names, read),
        _training(names),
        _static_embedding(names, read),
        _old_sentence_transformer(names),
        _other_weights(names),
        _nested(names),
    )
    found = next((kind for kind in kinds if kind), None)
    problem, remedy = found or (
        "has no config.json",
        "use a checkpoint that transformers can load",
    )
    return WrongCheckpoint(place, problem, remedy)


def missing_weights(
    names: Collection[str], place: str, read: Callable[[str], Path] | None = None
) -> WrongCheckpoint:
    """Return the error of a folder or repository with a `config.json` and without weights.

    The arguments are those of :func:`missing_config`.
    """
    found = _adapter(names, read) or _other_weights(names) or _training(names)
    problem, remedy = found or (
        "has no weights that transformers loads (model.safetensors)",
        "use a checkpoint or a handler.revision that has them",
    )
    return WrongCheckpoint(place, problem, remedy)


def _adapter(names: Collection[str], read: Callable[[str], Path] | None) -> Found | None:
    if ADAPTER not in names:
        return None
    base = _value(ADAPTER, "base_model_name_or_path", read)
    return (
        f"is a LoRA adapter ({ADAPTER}) of {base or 'another model'}, and no model",
        "name that model in handler.model_name, and this folder in handler.adapters",
    )


def _training(names: Collection[str]) -> Found | None:
    """Return what to do with the `output_dir` of a Trainer."""
    steps = [int(match[1]) for folder in _folders(names) if (match := TRAINED.fullmatch(folder))]
    if not steps:
        return None
    last = f"checkpoint-{max(steps)}"
    if f"{last}/{CONFIG}" not in names and f"{last}/{ADAPTER}" in names:
        return (
            f"is the output_dir of a training, with a LoRA adapter in {last}",
            f"name the model in handler.model_name, and {last} in handler.adapters",
        )
    return (
        f"is the output_dir of a training, whose checkpoints are in folders of it ({last})",
        f"name one of them in handler.model_name, such as {last}",
    )


def _static_embedding(names: Collection[str], read: Callable[[str], Path] | None) -> Found | None:
    modules = _value(MODULES, None, read) if MODULES in names else None
    first = modules[0] if isinstance(modules, list) and modules else {}
    kind = str(first.get("type", "")) if isinstance(first, dict) else ""
    in_folder = any(folder.endswith("_StaticEmbedding") for folder in _folders(names))
    if not in_folder and not kind.endswith("StaticEmbedding"):
        return None
    return (
        "is a StaticEmbedding of sentence-transformers, which has vectors of words and no model",
        "use a checkpoint with a transformer",
    )


def _old_sentence_transformer(names: Collection[str]) -> Found | None:
    found = (each for each in _folders(names) if OLD_MODULE.fullmatch(each))
    folder = next((each for each in found if f"{each}/{CONFIG}" in names), None)
    if folder is None:
        return None
    return (
        f"is of an old version of sentence-transformers, with its model in {folder}",
        'save it again with a newer one: SentenceTransformer("FOLDER").save("NEW FOLDER")',
    )


def _other_weights(names: Collection[str]) -> Found | None:
    for suffix, kind, remedy in OTHER_WEIGHTS:
        name = next((name for name in sorted(names) if name.endswith(suffix)), None)
        if name and "/" not in name:
            return f"has the weights {kind} only ({name:.80})", remedy
    return None


def _nested(names: Collection[str]) -> Found | None:
    folder = next((each for each in _folders(names) if f"{each}/{CONFIG}" in names), None)
    if folder is None:
        return None
    return (
        f"has no config.json, and its folder {folder:.80} has one",
        f"name the folder {folder:.80} if its checkpoint is meant",
    )


def _folders(names: Collection[str]) -> Iterator[str]:
    return iter(sorted({name.partition("/")[0] for name in names if "/" in name}))


def _value(name: str, key: str | None, read: Callable[[str], Path] | None) -> object:
    """Return a value of a JSON file, or all of it; None where it cannot be read."""
    if read is None:
        return None
    try:
        document = json.loads(read(name).read_text(encoding="utf-8"))
        return document if key is None else document.get(key)
    except (OSError, ValueError, AttributeError):
        return None
