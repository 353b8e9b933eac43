"""The files of a checkpoint, of a repository, a folder or an archive, before anything is loaded.

Names in these files, such as the shards in an index, are the author's: each must be the name of a
file beside the file that names it, in its own format.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from ..config.documents import read_json
from ..config.messages import quote
from ..errors import WrongCheckpoint, summarize

SAFETENSORS = ("model.safetensors", "model.safetensors.index.json")
PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
INDEX = ".index.json"
MODEL_INDEX = "model_index.json"
MAX_COMPONENTS = 50
CONFIG = "config.json"
# The config of a GLiNER, which has the config of its encoder.
GLINER = "gliner_config.json"
# transformers loads an adapter beside a model by itself.
ADAPTER = "adapter_config.json"
MODULES = "modules.json"
# The layers of bge-m3 for the tokens of a text: their vectors, and their weights.
BGE_M3 = ("colbert_linear.pt", "sparse_linear.pt")
# The model type of a GLiClass, the model type of a GLiNER2, and the config of its encoder.
GLICLASS = "GLiClass"
GLINER2, GLINER2_ENCODER = "extractor", "encoder_config/config.json"
# The module of static embeddings of sentence-transformers, and the model type of model2vec.
STATIC, MODEL2VEC = ".StaticEmbedding", "model2vec"
# A key of the configs of model2vec that have no model type.
EARLY_MODEL2VEC = "apply_zipf"
FOLDER = re.compile(r"[A-Za-z0-9_-]+")
TRAINED = re.compile(r"checkpoint-(\d+)")
OLD_MODULE = re.compile(r"0_(?!StaticEmbedding)[A-Za-z]+")
OLD_CLIP = "0_CLIPModel"
MISTRAL = re.compile(r"consolidated(-\d+-of-\d+|\.\d+)?\.(safetensors|pth)")
# Endings of the names of weights of other programs, at the root or in one of their folders.
EXPORTED = "use the checkpoint that it was exported from"
FOLDERS_OF_EXPORTS = ("onnx", "openvino")
OTHER_WEIGHTS = (
    (".gguf", "of llama.cpp", "serve it with llama.cpp, or the checkpoint that it was made from"),
    (".h5", "of TensorFlow", "convert it with transformers 4: from_pretrained(…, from_tf=True)"),
    (".msgpack", "of Flax", "convert it with transformers 4: from_pretrained(…, from_flax=True)"),
    (".onnx", "of ONNX", EXPORTED),
    ("openvino_model.xml", "of OpenVINO", EXPORTED),
)

Found = tuple[str, str]


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
        read: returns the path of one of its files, for what an error says of them.

    Raises:
        WrongCheckpoint: there are no weights, or only pickles, which are not allowed; or there is
            an adapter as well.
    """
    safe = [name for name in SAFETENSORS if name in names]
    pickled = [name for name in PICKLES if name in names]
    if not safe and not pickled:
        raise missing_weights(names, place, read)
    _check_no_adapter(names, place)
    if not safe and not allow_pickle:
        raise WrongCheckpoint(
            place,
            f"has its weights only as pickles ({pickled[0]}), which can execute code when loaded",
            "use a checkpoint or a handler.revision with safetensors, or, if you trust its author,"
            " set handler.allow_pickle: true, or name --allow-pickle to `run` or `check`",
        )
    return (safe or pickled)[0]


def _check_no_adapter(names: Collection[str], place: str) -> None:
    if ADAPTER in names:
        raise WrongCheckpoint(
            place,
            f"has an adapter beside the model ({ADAPTER}), which would change it",
            "in a copy of the folder, move the adapter to another one, and name that in"
            " handler.adapters",
        )


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
        config: its config, which can name another file with the weights.

    Raises:
        WrongCheckpoint: there are only pickles, which are not allowed; an index, or the config,
            names anything but weights beside it; or an adapter is beside the model.
    """
    names = {path.name for path in folder.iterdir() if path.is_file()}
    _check_no_adapter(names, str(folder))
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


def files_in(folder: Path) -> set[str]:
    """Return the names of the files of a folder and of the folders in it."""
    paths = (path for pattern in ("*", "*/*") for path in folder.glob(pattern) if path.is_file())
    return {path.relative_to(folder).as_posix() for path in paths}


def static_folder(directory: Path) -> str | None:
    """Return the folder of static embeddings, the first module of a checkpoint; "" for its root.

    None is for a checkpoint that begins with another module, or has no modules.
    """
    return static_folder_of(_value(MODULES, None, directory.joinpath))


def static_folder_of(modules: object) -> str | None:
    """Return the folder of static embeddings by the content of modules.json; None without them."""
    first = modules[0] if isinstance(modules, list) and modules else None
    if not isinstance(first, dict) or not str(first.get("type")).endswith(STATIC):
        return None
    path = str(first.get("path", ""))
    return "" if path in ("", ".") else path if FOLDER.fullmatch(path) else None


def model_type_in(config: Path) -> object:
    """Return the model type in a config.json; None where it cannot be read or has none.

    Before it wrote a model type, model2vec wrote how its vectors were made.
    """
    document = _value(config.name, None, config.parent.joinpath)
    if not isinstance(document, dict):
        return None
    kind = document.get("model_type")
    return MODEL2VEC if kind is None and EARLY_MODEL2VEC in document else kind


def missing_config(
    names: Collection[str], place: str, read: Callable[[str], Path] | None = None
) -> WrongCheckpoint:
    """Return the error of a folder or repository without a `config.json`.

    Args:
        names: the names of its files, and of those in its folders.
        read: returns the path of one of its files, where they are here.
    """
    kinds = (
        _no_folder(place) if read and not names else None,
        _hub_cache(place) if read else None,
        _pipeline(names),
        _adapter(names, read),
        _training(names, place),
        _old_sentence_transformer(names),
        _mistral(names),
        _other_weights(names),
        _nested(names),
    )
    found = next((kind for kind in kinds if kind), None)
    problem, remedy = found or (
        "has no config.json",
        "use a checkpoint that transformers can load",
    )
    return WrongCheckpoint(place, problem, remedy)


def missing_pipeline(folder: Path) -> WrongCheckpoint:
    """Return the error of a folder without a `model_index.json`."""
    place = str(folder)
    problem, remedy = (
        _no_folder(place)
        or _hub_cache(place)
        or _transformers(folder)
        or (f"has no {MODEL_INDEX}", "use a pipeline that diffusers has saved")
    )
    return WrongCheckpoint(place, problem, remedy)


def require_folder(folder: Path) -> None:
    """Check that there is a folder.

    Raises:
        WrongCheckpoint: there is none.
    """
    if found := _no_folder(str(folder)):
        raise WrongCheckpoint(str(folder), *found)


def missing_weights(
    names: Collection[str], place: str, read: Callable[[str], Path] | None = None
) -> WrongCheckpoint:
    """Return the error of a folder or repository with a `config.json` and without weights.

    The arguments are the arguments of :func:`missing_config`.
    """
    found = (
        _adapter(names, read) or _mistral(names) or _other_weights(names) or _training(names, place)
    )
    problem, remedy = found or (
        "has no weights that transformers loads (model.safetensors)",
        "use a checkpoint or a handler.revision that has them",
    )
    return WrongCheckpoint(place, problem, remedy)


def _no_folder(place: str) -> Found | None:
    path = Path(place)
    if path.is_dir():
        return None
    if path.exists():
        return "is a file and no folder", "name the folder of a checkpoint"
    return "there is no such folder", "correct the path"


def _hub_cache(place: str) -> Found | None:
    """Return what to do with a folder of the cache of huggingface_hub.

    It has a folder in `snapshots` for each commit, and in `refs` the commits of branches.
    """
    commits = sorted(path.name for path in Path(place, "snapshots").glob("*") if path.is_dir())
    if not commits:
        return None
    main = Path(place, "refs", "main")
    latest = main.read_text("utf-8").strip() if main.is_file() else ""
    commit = latest if latest in commits else commits[-1]
    return (
        "is a folder of the hub's cache, whose checkpoints are in folders of snapshots",
        f"name {place}/snapshots/{commit}",
    )


def _pipeline(names: Collection[str]) -> Found | None:
    if MODEL_INDEX not in names:
        return None
    return (
        f"is a pipeline of diffusers ({MODEL_INDEX}), and no model of transformers",
        "serve it with mode: text_to_image",
    )


def _transformers(folder: Path) -> Found | None:
    if not (folder / CONFIG).is_file():
        return None
    return (
        f"is a model of transformers ({CONFIG}), and no pipeline of diffusers ({MODEL_INDEX})",
        "use a pipeline that diffusers has saved, or another mode",
    )


def _adapter(names: Collection[str], read: Callable[[str], Path] | None) -> Found | None:
    if ADAPTER not in names:
        return None
    base = _value(ADAPTER, "base_model_name_or_path", read)
    return (
        f"is a LoRA adapter ({ADAPTER}) of {base or 'another model'}, and no model",
        "write a YAML that names that model in handler.model_name, and this folder in"
        " handler.adapters",
    )


def _training(names: Collection[str], place: str) -> Found | None:
    """Return what to do with the `output_dir` of a Trainer."""
    steps = [int(match[1]) for folder in _folders(names) if (match := TRAINED.fullmatch(folder))]
    if not steps:
        return None
    last = f"checkpoint-{max(steps)}"
    if f"{last}/{CONFIG}" not in names and f"{last}/{ADAPTER}" in names:
        return (
            f"is the output_dir of a training, with a LoRA adapter in {last}",
            f"write a YAML that names the model in handler.model_name, and {last} in"
            " handler.adapters",
        )
    # What `save_model` wrote at the end, such as `final`.
    saved = (each for each in _folders(names) if f"{each}/{CONFIG}" in names)
    final = sorted(each for each in saved if not TRAINED.fullmatch(each))
    best = final[0] if final else last
    return (
        "is the output_dir of a training, whose checkpoints are in folders of it"
        f" ({', '.join([*final, last])})",
        f"name one of them, such as {place}/{best}"
        if Path(place).is_dir()
        else f"download it, and name the folder of one of them, such as {best}",
    )


def _old_sentence_transformer(names: Collection[str]) -> Found | None:
    found = (each for each in _folders(names) if OLD_MODULE.fullmatch(each))
    folder = next((each for each in found if f"{each}/{CONFIG}" in names), None)
    if folder is None:
        return None
    if folder == OLD_CLIP:
        return (
            f"has a CLIP model in {folder}, as old versions of sentence-transformers save it",
            "use the checkpoint that it was made from, such as openai/clip-vit-base-patch32",
        )
    return (
        f"is of an old version of sentence-transformers, with its model in {folder}",
        'save it again with a newer one: SentenceTransformer("FOLDER").save("NEW FOLDER")',
    )


def _mistral(names: Collection[str]) -> Found | None:
    """Return what to do with a checkpoint in the format of Mistral's own library."""
    name = next((name for name in sorted(names) if MISTRAL.fullmatch(name)), None)
    if name is None:
        return None
    return (
        f"has the weights of Mistral's own format only ({name:.80})",
        "use a repository or a handler.revision with the format of transformers, which has"
        f" {CONFIG} and {SAFETENSORS[0]}",
    )


def _other_weights(names: Collection[str]) -> Found | None:
    for suffix, kind, remedy in OTHER_WEIGHTS:
        fitting = sorted(name for name in names if name.endswith(suffix))
        places = ("", *FOLDERS_OF_EXPORTS)
        name = next((name for name in fitting if name.rpartition("/")[0] in places), None)
        if name:
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
        document = read_json(read(name))
        return document if key is None else document.get(key)
    except (OSError, ValueError, AttributeError):
        return None


@dataclass(frozen=True)
class ModelIndex:
    """`model_index.json` of a diffusers checkpoint: its pipeline, and its components.

        {"_class_name": "StableDiffusionPipeline", "unet": ["diffusers", "UNet2DConditionModel"], …}

    Each component has a folder of its name. Other values are settings of the pipeline.

    Attributes:
        components: the library and the class of each component, by its name, which is its folder.
    """

    pipeline: str
    components: Mapping[str, tuple[str, str]]

    @classmethod
    def read(cls, path: Path) -> ModelIndex:
        """Read a `model_index.json`.

        Raises:
            WrongCheckpoint: it is missing, invalid, or names its own code.
        """
        try:
            document = read_json(path)
        except (OSError, ValueError) as error:
            raise _wrong_index(f"cannot be read ({summarize(error)})") from None
        if not isinstance(document, dict) or "_class_name" not in document:
            raise _wrong_index("names no pipeline in _class_name")
        listed = {name: value for name, value in document.items() if isinstance(value, list)}
        pipeline = document["_class_name"]
        if not isinstance(pipeline, str) or not pipeline.isidentifier():
            raise _custom_code(f"_class_name {quote(pipeline)}")
        if len(listed) > MAX_COMPONENTS:
            raise _wrong_index(f"has {len(listed)} components, more than {MAX_COMPONENTS}")
        found = {name: _component(name, value) for name, value in listed.items()}
        return cls(pipeline, {name: names for name, names in found.items() if names})


def _component(name: str, value: list[Any]) -> tuple[str, str] | None:
    """Return the library and the class of a component; None for one that the checkpoint lacks."""
    if value == [None, None]:
        return None
    names = [name, *value]
    if len(value) != 2 or not all(isinstance(each, str) and each.isidentifier() for each in names):
        raise _custom_code(f"the component {quote(name)} as {quote(value)}")
    library, class_name = value
    return library, class_name


def _wrong_index(problem: str) -> WrongCheckpoint:
    return WrongCheckpoint(MODEL_INDEX, problem, "use a checkpoint that diffusers has saved")


def _custom_code(what: str) -> WrongCheckpoint:
    return WrongCheckpoint(
        MODEL_INDEX,
        f"has {what}, which is no class of diffusers or transformers",
        "use a checkpoint without custom code",
    )
