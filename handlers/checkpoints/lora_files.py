"""The files of LoRA adapters as peft saves them, checked before any weight is loaded.

https://huggingface.co/docs/peft/developer_guides/checkpoint
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate, islice
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)
from safetensors import SafetensorError, safe_open

from ..config.documents import read_json
from ..config.handler_section import ADAPTER_NAME, HandlerSection
from ..config.messages import describe_validation_error, quote, shorten
from ..errors import WrongCheckpoint, summarize

FOLDER = "adapters"
CONFIG_FILE = "adapter_config.json"
WEIGHTS_FILE = "adapter_model.safetensors"
PICKLE = "adapter_model.bin"
FILES = (CONFIG_FILE, WEIGHTS_FILE)
# The labels of an adapter with a head, in either form.
LABEL_FILES = ("index_to_name.json", "config.json")
MAX_CONFIG_BYTES = 1_000_000
MAX_RANK = 512  # As vLLM.
# Folders of `adapters_directory` that are looked at for a list of adapters.
MAX_LISTED = 1_000
PREFIX = "base_model.model."
TENSOR = re.compile(r"base_model\.model\.([\w.]+?)\.(lora_A\.weight|lora_B\.weight|weight|bias)")
# The layers of classifiers that have an output for each label.
HEADS = ("classifier", "score", "classifier.out_proj")
# Keys that only training reads, or that the names of the tensors make unnecessary.
UNUSED = {
    "auto_mapping",
    "exclude_modules",
    "fan_in_fan_out",
    "inference_mode",
    "layers_pattern",
    "layers_to_transform",
    "lora_dropout",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "revision",
    "target_modules",
}
OFF: tuple[Any, ...] = (None, False, 0, "none", [], {})
# Initializations that leave the weights of the model as they are.
INITIALIZATIONS = (True, False, "gaussian", "eva", "orthogonal")

Rank = Annotated[int, Field(ge=1, le=MAX_RANK)]
# peft reads these names as regular expressions; without quantifiers they take no time.
ModuleName = Annotated[str, StringConstraints(pattern=r"^\^?[\w.]+$", max_length=200)]


class LoraSettings(BaseModel):
    """The keys of adapter_config.json that change what an adapter computes.

    Any other key that is set would change it too, and is refused.
    """

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False)

    peft_type: Literal["LORA"]
    task_type: Literal["CAUSAL_LM", "SEQ_CLS", "TOKEN_CLS", "FEATURE_EXTRACTION"] | None = None
    r: Rank
    lora_alpha: float
    use_rslora: bool = False
    modules_to_save: list[ModuleName] | None = None
    rank_pattern: dict[ModuleName, Rank] | None = None
    alpha_pattern: dict[ModuleName, float] | None = None
    init_lora_weights: Any = True
    base_model_name_or_path: str | None = None

    @model_validator(mode="after")
    def _check_other_keys(self) -> Self:
        if self.init_lora_weights not in INITIALIZATIONS:
            raise ValueError(
                f"has init_lora_weights {quote(self.init_lora_weights)}, which changes the weights"
                " of the model; convert the adapter with peft's"
                " path_initial_model_for_weight_conversion"
            )
        others = (self.model_extra or {}).items()
        found = next((key for key, value in others if not (key in UNUSED or value in OFF)), None)
        if found is not None:
            raise ValueError(
                f"sets {shorten(found)}, which this server does not run; train the adapter without"
                " it, or merge it into the checkpoint"
            )
        return self

    def rank(self, module: str) -> int:
        """Return the rank of the matrices of a module."""
        return _of_module(self.rank_pattern or {}, module, self.r)

    def scaling(self, module: str) -> float:
        """Return the factor of what an adapter adds to the output of a module."""
        rank = self.rank(module)
        alpha = _of_module(self.alpha_pattern or {}, module, self.lora_alpha)
        return alpha / (rank**0.5 if self.use_rslora else rank)


ValueT = TypeVar("ValueT", int, float)


def _of_module(patterns: Mapping[str, ValueT], module: str, default: ValueT) -> ValueT:
    """Return the value of a module, as peft's `get_pattern_key` finds it."""
    found = (value for key, value in patterns.items() if re.match(rf"(.*\.)?({key})$", module))
    return next(found, default)


@dataclass(frozen=True)
class LoraFiles:
    """A LoRA adapter without its weights.

    Attributes:
        modules: the modules that have matrices of it.
        saved: the tensors that it has in place of the tensors of the model, such as a head.
    """

    folder: Path
    settings: LoraSettings
    modules: Collection[str]
    saved: Collection[str] = ()

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the settings of an adapter and the names of its tensors.

        Raises:
            WrongCheckpoint: a file is missing or invalid, or has what is not plain LoRA.
        """
        if not folder.is_dir():
            raise WrongCheckpoint(
                str(folder),
                "there is no adapter in this folder",
                "download it with `hf-serve download` (scripts/download_models.py)",
            )
        files = [path for path in folder.iterdir() if path.is_file()]
        check_files({path.name: path.stat().st_size for path in files}, str(folder))
        settings = read_settings(folder)
        return cls(folder, settings, *_modules(folder / WEIGHTS_FILE, settings))

    @property
    def weights(self) -> Path:
        """The file with the tensors."""
        return self.folder / WEIGHTS_FILE

    def labels(self, known: Sequence[str]) -> list[str]:
        """Return the labels of its head.

        peft saves no labels: `index_to_name.json` or a `config.json` in the folder of the adapter
        has them. Without both, the labels of the model are taken, where there are as many.

        Args:
            known: the labels of the model.

        Raises:
            WrongCheckpoint: they are not as many as the head has outputs.
        """
        # This import loads transformers, which commands do not need.
        from .checkpoint import read_labels  # noqa: PLC0415

        count = self._head_size or len(known)
        names = dict(enumerate(known)) if count == len(known) else {}
        with suppress(OSError, ValueError, AttributeError, TypeError):
            own = read_json(self.folder / "config.json")["id2label"]
            names = {int(number): str(name) for number, name in own.items()}
        return read_labels(self.folder, names, count)

    @property
    def _head_size(self) -> int | None:
        """The number of labels of its head; None where it has no head."""
        head = next((name for name in HEADS if f"{name}.weight" in self.saved), None)
        if head is None:
            return None
        with safe_open(self.weights, "numpy") as tensors:
            return int(tensors.get_slice(f"{PREFIX}{head}.weight").get_shape()[0])


class AdapterFolders(Collection[str]):
    """The adapters that requests may choose, by name.

    Args:
        directory: the folder of the checkpoint.

    Attributes:
        packed: the names of the adapters of the YAML; others are in its `adapters_directory`.
        max_loaded: the maximum number of others in memory between batches.
    """

    def __init__(self, directory: Path, handler: HandlerSection) -> None:
        self._folders = {
            name: adapter_folder(directory, name, source)
            for name, source in handler.adapters.items()
        }
        self.packed = tuple(self._folders)
        self.max_loaded = handler.max_loaded_adapters
        self._others = Path(handler.adapters_directory) if handler.adapters_directory else None
        self._labels = dict[tuple[str, int], list[str]]()

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._find(name) is not None

    def __iter__(self) -> Iterator[str]:
        yield from self._folders
        if self._others is not None and self._others.is_dir():
            names = sorted(each.name for each in islice(self._others.iterdir(), MAX_LISTED))
            yield from (name for name in names if name not in self._folders and name in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return bool(self._folders) or self._others is not None

    def version(self, name: str) -> int:
        """Return what changes when the weights of an adapter are replaced."""
        folder = self._find(name)
        try:
            return (folder / WEIGHTS_FILE).stat().st_mtime_ns if folder else 0
        except OSError:
            return 0

    def _find(self, name: str) -> Path | None:
        """Return the folder of an adapter; None where there is none."""
        if name in self._folders:
            return self._folders[name]
        if self._others is None or not ADAPTER_NAME.fullmatch(name):
            return None
        folder = (self._others / name).resolve()
        is_inside = folder.parent == self._others.resolve()
        return folder if is_inside and (folder / CONFIG_FILE).is_file() else None

    def read(self, name: str) -> LoraFiles:
        """Return the files of an adapter.

        Raises:
            WrongCheckpoint: one is missing or invalid.
        """
        return LoraFiles.read(self._find(name) or Path(name))

    def labels(self, name: str, known: Sequence[str]) -> Sequence[str]:
        """Return the labels of an adapter, given the labels of the model."""
        key = name, self.version(name)
        if key not in self._labels:
            self._labels[key] = self.read(name).labels(known)
        return self._labels[key]


def adapter_folder(directory: Path, name: str, source: str) -> Path:
    """Return the folder of an adapter: beside the checkpoint, or where the YAML says."""
    beside, local = directory / FOLDER / name, Path(source)
    return local if local.is_dir() and not beside.is_dir() else beside


def read_settings(folder: Path) -> LoraSettings:
    """Read adapter_config.json from a folder.

    Raises:
        WrongCheckpoint: it is missing or invalid, or has what is not plain LoRA.
    """
    path = folder / CONFIG_FILE
    try:
        return LoraSettings.model_validate_json(path.read_bytes())
    except ValidationError as error:
        problem, remedy = describe_validation_error(LoraSettings, error)
        raise WrongCheckpoint(str(path), problem, remedy) from None


def check_files(sizes: Mapping[str, int], place: str) -> None:
    """Check that an adapter has settings of a usual size, and its weights as safetensors.

    Raises:
        WrongCheckpoint: it has not, or has its weights as a pickle only.
    """
    if CONFIG_FILE not in sizes:
        raise WrongCheckpoint(place, f"has no {CONFIG_FILE}", "use an adapter that peft has saved")
    if sizes[CONFIG_FILE] > MAX_CONFIG_BYTES:
        raise WrongCheckpoint(
            place, f"has {CONFIG_FILE} with over 1 MB", "use an adapter that peft has saved"
        )
    if WEIGHTS_FILE not in sizes:
        raise WrongCheckpoint(
            place,
            f"has its weights only as a pickle ({PICKLE}), which can execute code when loaded"
            if PICKLE in sizes
            else f"has no {WEIGHTS_FILE}",
            "save the adapter with peft's save_pretrained, which writes safetensors",
        )


def _modules(path: Path, settings: LoraSettings) -> tuple[Collection[str], Collection[str]]:
    """Return the names of the modules with matrices, and of the saved tensors."""
    try:
        with safe_open(path, "numpy") as tensors:
            names = list(tensors.keys())
    except (SafetensorError, OSError) as error:
        raise WrongCheckpoint(
            str(path), f"cannot be read ({summarize(error)})", "download it again"
        ) from None
    modules, saved = set[str](), set[str]()
    for name in names:
        match = TENSOR.fullmatch(name)
        if match and match[2].startswith("lora_"):
            modules.add(match[1])
        elif match and _is_saved(match[1], settings.modules_to_save or ()):
            saved.add(f"{match[1]}.{match[2]}")
        else:
            raise _wrong_tensors(path, f"has the tensor {quote(name)}")
    if not modules:
        raise _wrong_tensors(path, "has no tensors of LoRA")
    return frozenset(modules), frozenset(saved)


def _is_saved(module: str, names: Collection[str]) -> bool:
    """Return whether peft saves a module for one of the names: it, or a part of it."""
    parents = accumulate(module.split("."), "{}.{}".format)
    return any(parent.endswith(name) for parent in parents for name in names)


def _wrong_tensors(path: Path, problem: str) -> WrongCheckpoint:
    return WrongCheckpoint(
        str(path),
        problem,
        "use an adapter that has lora_A and lora_B of linear layers, and layers of modules_to_save",
    )
