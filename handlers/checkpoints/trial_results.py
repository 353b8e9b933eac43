"""Results of the trials at load, which packing records as `trials.json` of an archive.

Which rows a model may run together is tried when it loads. Packing has done so with the same files
when it checks that an archive loads, so a worker with the same key takes its results. The key has
what can change a result: files, settings, packages, processor and data type.

The number of threads, which differs between hosts, is not in the key. It changes the order of sums,
and with it the last bits of outputs. The tolerance of trials is far above that, and rows that must
not run together differ by far more than the tolerance.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..config.model_config import ModelConfig
from .archive_signature import unlisted

if TYPE_CHECKING:
    import torch


logger = logging.getLogger(__name__)

FILE = "trials.json"
CPU_INFO = Path("/proc/cpuinfo")
PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "safetensors", "peft", "accelerate")
# Lines of /proc/cpuinfo that name the processor and its instructions, on x86 and ARM.
PROCESSOR = {
    "vendor_id",
    "cpu family",
    "model",
    "model name",
    "stepping",
    "flags",
    "Features",
    "CPU implementer",
    "CPU architecture",
    "CPU variant",
    "CPU part",
    "CPU revision",
}
# Variables that select the kernels of torch and its libraries.
KERNEL_VARIABLES = ("ATEN_", "DNNL_", "ONEDNN_", "MKL_", "OPENBLAS_", "USE_HUB_KERNELS")
# Folders of an unpacked archive whose further files a model does not read.
OF_CODE = {"handlers", "MAR-INF", "__pycache__"}
# Files with the name and the version of an archive, which no model reads.
OF_ARCHIVE = "MAR-INF/"
Number = Annotated[int, Field(ge=0)]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class TrialResults(_Strict):
    """Which rows of a model may run together.

    Attributes:
        packing: the numbers of the mask and of the pooling layer of packed rows, where the head
            pools; None for a model that does not pack rows.
        padded_limit: the padded limit of the model; None where it is infinite.
    """

    packing: tuple[Number, Number | None] | None
    padded_limit: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None
    runs_alone: bool


class TrialKey(_Strict):
    """What the results of the trials depend on.

    Attributes:
        files: a digest of the SHA-256 sums of the files of the archive that a load reads.
        settings: a digest of the YAML as it was read, with the format of `save_mode: auto`.
        processor: a digest of the lines of the processor in `/proc/cpuinfo`.
        capability: the instructions that torch uses, and its precision of float32 products.
        variables: the variables of the environment that select kernels.
    """

    files: str
    settings: str
    packages: dict[str, str]
    processor: str
    capability: str
    dtype: str
    variables: dict[str, str]

    @classmethod
    def here(
        cls, sums: Mapping[str, str], config: ModelConfig, device: torch.device, dtype: str
    ) -> TrialKey | None:
        """Return the key of a load in this process; None for one whose results are not recorded.

        Args:
            sums: the verified sum of each file of the archive; empty where they were not verified.
        """
        # Imported here because packing, which needs the name of the file, imports no torch.
        import torch  # noqa: PLC0415

        from ..process.ranks import world_size  # noqa: PLC0415

        spread = config.handler.uses_device_map or world_size() > 1
        if not sums or spread or device.type != "cpu" or not CPU_INFO.is_file():
            return None
        return cls(
            files=files_digest(sums),
            settings=_digest(config.model_dump_json()),
            packages=dict(installed_packages()),
            processor=_processor(),
            capability=(
                f"{torch.backends.cpu.get_cpu_capability()} {torch.get_float32_matmul_precision()}"
            ),
            dtype=dtype,
            variables={
                name: value
                for name, value in sorted(os.environ.items())
                if name.startswith(KERNEL_VARIABLES)
            },
        )


class TrialRecord(_Strict):
    """The content of `trials.json`."""

    key: TrialKey
    results: TrialResults


def recorded_results(folder: Path, sums: Mapping[str, str], key: TrialKey) -> TrialResults | None:
    """Return the results that an archive has for a key; None if it has none for it.

    A record that cannot be read is ignored, and so is one beside files that were not packed.
    """
    if FILE not in sums:
        return None
    try:
        record = TrialRecord.model_validate_json((folder / FILE).read_bytes())
    except (OSError, ValidationError) as error:
        logger.warning("%s is ignored (%s); trials run", FILE, type(error).__name__)
        return None
    if added := unlisted(_files_of_checkpoint(folder), sums):
        logger.info("%s does not hold beside %s, which was not packed; trials run", FILE, added[0])
        return None
    if record.key == key:
        logger.info("Trials are not run: %s has their results", FILE)
        return record.results
    changed = [name for name in TrialKey.model_fields if _differs(record.key, key, name)]
    logger.info("%s holds for other %s; trials run", FILE, ", ".join(changed))
    return None


def files_digest(sums: Mapping[str, str]) -> str:
    """Return one digest of the sums of all files but the record, and what names the archive."""
    others = sorted(
        (path, each)
        for path, each in sums.items()
        if path != FILE and not path.startswith(OF_ARCHIVE)
    )
    return _digest(json.dumps(others))


def _files_of_checkpoint(folder: Path) -> list[str]:
    tops = [path for path in folder.iterdir() if path.name not in OF_CODE]
    paths = [path for top in tops for path in (top.rglob("*") if top.is_dir() else [top])]
    return [path.relative_to(folder).as_posix() for path in paths if path.is_file()]


def _differs(one: TrialKey, other: TrialKey, name: str) -> bool:
    return bool(getattr(one, name) != getattr(other, name))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def installed_packages() -> Mapping[str, str]:
    """Return the versions of the packages that compute, of which some may be missing."""
    return {name: found for name in PACKAGES if (found := _version(name))}


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _processor() -> str:
    """Return a digest of the first processor; the file has a block of lines for each."""
    found = []
    with CPU_INFO.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            if not line.strip():
                break
            if line.partition(":")[0].strip() in PROCESSOR:
                found.append(line)
    return _digest("".join(found))
