"""The dtype that `dtype: auto` of a checkpoint is where it is served."""

from __future__ import annotations

import logging

from handlers.checkpoints.dtypes import name_of, pick_dtype, quantization_method
from handlers.checkpoints.model_spec import ModelSpec
from handlers.checkpoints.placement import compute_device
from handlers.export.parity_report import ParityReport

logger = logging.getLogger(__name__)


def resolve_auto(spec: ModelSpec, report: ParityReport | None) -> ModelSpec:
    """Return the spec of a checkpoint with a dtype instead of `auto`.

    It is float32 if fewer bits changed too many labels when the model was packed, and what the
    device supports otherwise. Exported models have their dtype in their manifest, and checkpoints
    with quantized weights in their config.

    Args:
        spec: the model to load.
        report: the report of the archive; None if there is none.
    """
    handler = spec.config.handler
    if handler.dtype != "auto" or handler.is_exported:
        return spec
    if quantization_method(spec.checkpoint.config):
        return spec
    if report and (rejected := report.rejected):
        logger.info("dtype: auto is float32, because in %s the model %s", rejected.dtype, rejected)
        return spec.in_float32()
    device = compute_device(spec.config, spec.device)
    return spec.with_settings(dtype=name_of(pick_dtype("auto", device)))
