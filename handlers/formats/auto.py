"""`save_mode: auto`, the fastest format for a mode on a device, and `dtype: auto`.

The format is chosen when a model is packed, and `save_mode.json` in the archive names it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from .. import tasks
from ..checkpoints.dtypes import FLOAT32_ONLY, name_of, pick_dtype, quantization_method
from ..config.documents import PackedFacts
from ..config.handler_section import CHECKPOINT

if TYPE_CHECKING:
    from ..checkpoints.model_spec import ModelSpec
    from ..export.fidelity_report import FidelityReport

logger = logging.getLogger(__name__)

FILE = "save_mode.json"
VLLM = "vllm"  # the package, and the value of `handler.engine`


@dataclass(frozen=True)
class Choice(PackedFacts):
    """What `save_mode: auto` is.

    Attributes:
        device: the type of device that it was chosen for.
        reason: why it was chosen, as a clause.
        engine: the value of `handler.engine` that was chosen with it; None for none.
    """

    file: ClassVar = FILE
    save_mode: str
    device: str
    reason: str
    engine: str | None = None

    def __str__(self) -> str:
        engine = f" with engine: {self.engine}" if self.engine else ""
        return f"save_mode: auto is {self.save_mode}{engine}, because {self.reason}"

    def log(self, mode: str, device: str) -> None:
        """Log the choice, with a warning if another format is the fastest on a worker's device."""
        logger.info("%s", self)
        if device != self.device and fastest(mode, device).save_mode != self.save_mode:
            logger.warning(
                "save_mode: auto is %s, which was chosen for %s, and this worker has %s. It works,"
                " and is slower than another format: pack the model on a machine like this one.",
                self.save_mode,
                self.device,
                device,
            )


def fastest(mode: str, device: str) -> Choice:
    """Return the fastest format for a mode on a type of device; else the checkpoint itself."""
    save_mode = tasks.get(mode).description.exports.fastest_formats.get(device, CHECKPOINT)
    return Choice(save_mode, device, f"it is the fastest for {mode} on {device}")


def with_vllm(choice: Choice) -> Choice:
    """Return a choice of the checkpoint with vLLM."""
    reason = f"{choice.reason} and vLLM is installed (engine: null in the YAML leaves it out)"
    return replace(choice, reason=reason, engine=VLLM)


def replacement(choice: Choice, problem: str) -> Choice:
    """Return the checkpoint itself, for a format that is not possible."""
    reason = f"{choice.save_mode}, the fastest on {choice.device}, is not possible ({problem})"
    return Choice(CHECKPOINT, choice.device, reason)


def without_export(device: str) -> Choice:
    """Return the choice of a folder that has none: a checkpoint that nothing was exported of."""
    return Choice(CHECKPOINT, device, f"the archive has the checkpoint alone, without {FILE}")


def resolve_auto_dtype(spec: ModelSpec, report: FidelityReport | None) -> ModelSpec:
    """Return the spec of a checkpoint with a dtype instead of `auto`.

    It is float32 if fewer bits changed too many labels when the model was packed, or its layers
    compute in float32 alone, and what the device supports otherwise. Exported models have their
    dtype in their manifest, and checkpoints with quantized weights in their config.

    Args:
        report: the report of the archive; None if there is none.
    """
    handler = spec.config.handler
    if handler.dtype != "auto" or handler.is_exported:
        return spec
    if quantization_method(spec.checkpoint.config):
        return spec
    if spec.checkpoint.config.model_type in FLOAT32_ONLY:
        return spec.in_float32()
    if report and (rejected := report.rejected):
        logger.info("dtype: auto is float32, because in %s the model %s", rejected.dtype, rejected)
        return spec.in_float32()
    # This import loads torch, which the choice of a format does not need.
    from ..checkpoints.placement import compute_device  # noqa: PLC0415

    device = compute_device(spec.config, spec.device)
    return spec.with_settings(dtype=name_of(pick_dtype("auto", device)))
