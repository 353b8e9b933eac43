"""Select the required files of a model repository: configs, tokenizers and one set of weights.

A checkpoint of transformers has them at the root of its repository. One of diffusers has a folder
for each component that its `model_index.json` names.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from hf_serve.handlers.checkpoints.checkpoint_files import (
    BGE_M3,
    CONFIG,
    GLINER,
    GLINER2_ENCODER,
    INDEX,
    MODEL_INDEX,
    ModelIndex,
    missing_config,
    shard_files,
    static_folder,
    weights_file,
)
from hf_serve.handlers.checkpoints.lora_files import FILES as LORA_FILES
from hf_serve.handlers.checkpoints.lora_files import FOLDER as ADAPTERS
from hf_serve.handlers.checkpoints.lora_files import LABEL_FILES, LoraFiles, adapter_folder
from hf_serve.handlers.checkpoints.unread_files import QUANTIZED, SETFIT, TEKKEN
from hf_serve.handlers.config.handler_section import HandlerSection
from hf_serve.handlers.errors import WrongCheckpoint

if TYPE_CHECKING:
    # It imports huggingface_hub, which commands without a download do not need.
    from hf_serve.scripts.hub.client import Hub

# Without *.py, vocab.pkl and vocab.bin, which execute code when loaded.
CONFIG_FILES = (
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
    "artifact.metadata",  # of ColBERT
    *BGE_M3,
    "preprocessor_config.json",
    "processor_config.json",
    # They say what the weights or the head are, and that they are not served.
    SETFIT,
    *QUANTIZED,
    TEKKEN,
)
# Files of sentence-transformers: its modules, their folders and what it says about prompts.
MODULES = "modules.json"
MODULE_FILES = re.compile(
    r"modules\.json|config_sentence_transformers\.json|sentence_[a-z-]+_config\.json"
    r"|router_config\.json"
    r"|([1-9]|(query|document)_[0-9])_[A-Za-z]+/(config\.json|model\.safetensors|pytorch_model\.bin)"
)
# One of these is at the root of every checkpoint.
ROOT_FILES = (CONFIG, MODEL_INDEX, MODULES, GLINER)
# Files of a component of diffusers, without its weights.
COMPONENT_FILES = ("*.json", "*.txt", "*.model", "*.jinja")
COMPONENT_WEIGHTS = ("diffusion_pytorch_model.safetensors", "model.safetensors")
UNSAFE_WEIGHTS = (".bin", ".ckpt", ".pt", ".pth", ".msgpack")


Read = Callable[[str], Path]


def config_files(names: Collection[str], place: str, read: Read | None = None) -> list[str]:
    """Return the config files of a repository, tokenizer and image processor included.

    Config files of sentence-transformers are included. A module in a folder has its few weights
    there; a pickle is left out where there are safetensors.

    Raises:
        WrongCheckpoint: there is no config.json.
    """
    if "config.json" not in names:
        raise missing_config(names, place, read)
    return sorted({*root_config_files(names), *_module_files(names)})


def root_config_files(names: Collection[str]) -> list[str]:
    """Return the config files at the root of a repository."""
    root = (name for name in names if "/" not in name)
    return sorted(name for name in root if any(fnmatchcase(name, each) for each in CONFIG_FILES))


def _module_files(names: Collection[str]) -> set[str]:
    if MODULES not in names:
        return set()
    found = {name for name in names if MODULE_FILES.fullmatch(name)}
    pickles = (name for name in found if name.endswith("/pytorch_model.bin"))
    return found - {each for each in pickles if f"{Path(each).parent}/model.safetensors" in found}


@dataclass(frozen=True)
class CheckpointFiles(ABC):
    """The files of a checkpoint.

    Attributes:
        names: the names of all files of its repository or folder.
        place: the repository or folder, for errors.
        converts_pickles: whether a download converts its weights where they are pickles.
    """

    names: Collection[str]
    place: str
    converts_pickles: ClassVar[bool] = False

    @abstractmethod
    def configs(self) -> list[str]:
        """Return the files other than weights.

        Raises:
            WrongCheckpoint: one is missing.
        """

    @abstractmethod
    def weights(self, *, allow_pickle: bool) -> list[str]:
        """Return the files with weights, or the index files of sharded ones.

        Raises:
            WrongCheckpoint: there are none, or only pickles, which are not allowed.
        """

    def add_missing(self, folder: Path, hub: Hub) -> list[str]:
        """Download what configs need of other repositories to a folder; return its names."""
        return []

    def converted(self, folder: Path, weights: list[str]) -> list[str]:
        """Return the files with weights after a download, whose pickles may be converted."""
        return weights

    def shards(self, folder: Path, weights: Collection[str]) -> list[str]:
        """Return the shards that index files among the weights list, which are in a folder.

        Raises:
            WrongCheckpoint: an index is invalid, or lists anything but weights in its folder.
        """
        return [shard for name in weights for shard in self._shards(folder, name)]

    def _shards(self, folder: Path, weights: str) -> list[str]:
        parent = weights.removesuffix(Path(weights).name)
        beside = {name.removeprefix(parent) for name in self.names if name.startswith(parent)}
        return [f"{parent}{shard}" for shard in shard_files(folder / weights, beside, self.place)]


@dataclass(frozen=True)
class TransformersFiles(CheckpointFiles):
    """The files of a checkpoint of transformers.

    Attributes:
        read: returns the path of one of its files, which may have to be downloaded.
    """

    read: Read | None = None

    def configs(self) -> list[str]:
        return config_files(self.names, self.place, self.read)

    def weights(self, *, allow_pickle: bool) -> list[str]:
        return [weights_file(self.names, self.place, allow_pickle=allow_pickle, read=self.read)]


@dataclass(frozen=True)
class DiffusersFiles(CheckpointFiles):
    """The files of a checkpoint of diffusers, without variants and conversions."""

    index: ModelIndex

    def configs(self) -> list[str]:
        found = [
            f"{component}/{name}"
            for component in self.index.components
            for name in self._component(component)
            if any(fnmatchcase(name, each) for each in COMPONENT_FILES) and INDEX not in name
        ]
        return sorted([MODEL_INDEX, *found])

    def weights(self, *, allow_pickle: bool) -> list[str]:
        """Return the safetensors of each component that has a `config.json`.

        Pickles are refused whatever the YAML allows.
        """
        models = [
            component
            for component in self.index.components
            if "config.json" in self._component(component)
        ]
        return [f"{component}/{self._weights(component)}" for component in models]

    def _component(self, component: str) -> list[str]:
        """Return the names of the files in the folder of a component."""
        parent = f"{component}/"
        found = [name.removeprefix(parent) for name in self.names if name.startswith(parent)]
        if not found:
            raise WrongCheckpoint(
                self.place,
                f"has no folder {component}, a component that its {MODEL_INDEX} names",
                "use a checkpoint with all of its components",
            )
        return [name for name in found if "/" not in name]

    def _weights(self, component: str) -> str:
        names = self._component(component)
        candidates = [f"{each}{end}" for each in COMPONENT_WEIGHTS for end in ("", INDEX)]
        safe = next((each for each in candidates if each in names), None)
        if safe is not None:
            return safe
        unsafe = next((name for name in sorted(names) if name.endswith(UNSAFE_WEIGHTS)), None)
        if unsafe is None:
            problem = f"has no weights of its {component} ({candidates[0]})"
        else:
            problem = (
                f"has the weights of its {component} only as pickles ({unsafe}), which can execute"
                " code when loaded"
            )
        raise WrongCheckpoint(
            self.place, problem, "use a checkpoint or a handler.revision with safetensors"
        )


@dataclass(frozen=True)
class StaticFiles(CheckpointFiles):
    """The files of static embeddings of sentence-transformers, which have no config.json.

    Attributes:
        folder: the folder of the tokenizer and the weights, with a slash; empty for the root.
    """

    folder: str

    def configs(self) -> list[str]:
        tokenizer = f"{self.folder}tokenizer.json"
        self._check(tokenizer)
        return sorted({tokenizer, MODULES} | _module_files(self.names))

    def weights(self, *, allow_pickle: bool) -> list[str]:
        weights = f"{self.folder}model.safetensors"
        self._check(weights)
        return [weights]

    def _check(self, name: str) -> None:
        if name not in self.names:
            raise WrongCheckpoint(
                self.place,
                f"has static embeddings and no {name}",
                "use a checkpoint or a handler.revision with safetensors and a tokenizer.json",
            )


@dataclass(frozen=True)
class ConvertedFiles(TransformersFiles):
    """The files of a checkpoint whose published weights are a pickle of tensors (bge-m3)."""

    converts_pickles = True

    def converted(self, folder: Path, weights: list[str]) -> list[str]:
        # This import loads torch, which packing does not need.
        from hf_serve.scripts.hub.gliner import PICKLE, SAFE, convert_pickle  # noqa: PLC0415

        if weights != [PICKLE]:
            return weights
        convert_pickle(folder)
        return [SAFE]


@dataclass(frozen=True)
class GlinerFiles(ConvertedFiles):
    """The files of a GLiNER: its config, its tokenizer, and `config.json` of its encoder."""

    def configs(self) -> list[str]:
        return [GLINER, *root_config_files(self.names)]

    def add_missing(self, folder: Path, hub: Hub) -> list[str]:
        # This import loads torch, which packing does not need.
        from hf_serve.scripts.hub.gliner import add_base_files  # noqa: PLC0415

        return add_base_files(folder, hub)


@dataclass(frozen=True)
class Gliner2Files(TransformersFiles):
    """The files of a GLiNER2: also the config of its encoder, which is in a folder."""

    def configs(self) -> list[str]:
        return sorted([*super().configs(), GLINER2_ENCODER])


def checkpoint_files(names: Collection[str], place: str, read: Read) -> CheckpointFiles:
    """Return the files of a checkpoint.

    It is one of diffusers where it has a `model_index.json`, a GLiNER where it has a
    `gliner_config.json`, a GLiNER2 where it has the config of its encoder in a folder, and of the
    kind of bge-m3 where it has the layers of its tokens.

    Raises:
        WrongCheckpoint: the `model_index.json` is invalid, or names custom code.
    """
    if GLINER in names:
        return GlinerFiles(names, place, read)
    if GLINER2_ENCODER in names:
        return Gliner2Files(names, place, read)
    if {*BGE_M3} <= {*names}:
        return ConvertedFiles(names, place, read)
    if MODEL_INDEX in names:
        return DiffusersFiles(names, place, ModelIndex.read(read(MODEL_INDEX)))
    if MODULES in names and "config.json" not in names:
        folder = static_folder(read(MODULES).parent)
        if folder is not None:
            return StaticFiles(names, place, f"{folder}/" if folder else "")
    return TransformersFiles(names, place, read)


def adapter_files(handler: HandlerSection, checkpoint: Path) -> dict[str, Path]:
    """Return the files of all adapters by their paths in an archive.

    Raises:
        WrongCheckpoint: an adapter is missing, or is not one that this kit serves.
    """
    folders = {
        name: adapter_folder(checkpoint, name, source) for name, source in handler.adapters.items()
    }
    read = {name: LoraFiles.read(folder) for name, folder in folders.items()}
    return {
        f"{ADAPTERS}/{name}/{file}": files.folder / file
        for name, files in read.items()
        for file in (*LORA_FILES, *LABEL_FILES)
        if file in LORA_FILES or (files.folder / file).is_file()
    }
