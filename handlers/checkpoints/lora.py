"""The files of LoRA adapters as peft saves them, checked before any weight is loaded.

https://huggingface.co/docs/peft/developer_guides/checkpoint
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)
from safetensors import SafetensorError, safe_open

from ..config.messages import describe_validation_error, quote, shorten
from ..errors import WrongCheckpoint, summarize

FOLDER = "adapters"
CONFIG_FILE = "adapter_config.json"
WEIGHTS_FILE = "adapter_model.safetensors"
PICKLE = "adapter_model.bin"
FILES = (CONFIG_FILE, WEIGHTS_FILE)
MAX_CONFIG_BYTES = 1_000_000
MAX_RANK = 512  # As vLLM.
TENSOR = re.compile(r"base_model\.model\.([\w.]+)\.lora_[AB]\.weight")
# Keys that only training reads, or that the names of the tensors make unnecessary.
UNUSED = {
    "auto_mapping",
    "exclude_modules",
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
    task_type: Literal["CAUSAL_LM"] | None = None
    r: Rank
    lora_alpha: float
    use_rslora: bool = False
    fan_in_fan_out: bool = False
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


@dataclass(frozen=True)
class LoraFiles:
    """A LoRA adapter without its weights."""

    folder: Path
    settings: LoraSettings
    modules: Collection[str]

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
        return cls(folder, read_settings(folder), _modules(folder / WEIGHTS_FILE))

    @property
    def weights(self) -> Path:
        """The file with the tensors."""
        return self.folder / WEIGHTS_FILE


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


def _modules(path: Path) -> frozenset[str]:
    try:
        with safe_open(path, "numpy") as tensors:
            names = list(tensors.keys())
    except (SafetensorError, OSError) as error:
        raise WrongCheckpoint(
            str(path), f"cannot be read ({summarize(error)})", "download it again"
        ) from None
    matches = {name: TENSOR.fullmatch(name) for name in names}
    other = next((name for name, match in matches.items() if not match), None)
    if other is not None or not names:
        raise WrongCheckpoint(
            str(path),
            f"has the tensor {quote(other)}" if names else "has no tensors",
            "use an adapter that has lora_A and lora_B of linear layers, and nothing else",
        )
    return frozenset(match[1] for match in matches.values() if match)
