"""Fewer bits for an OpenVINO model, by NNCF."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from handlers.batching import Batch
from handlers.errors import WrongConfig
from handlers.needed import needed
from handlers.sections import Quantization


def quantize(model: Any, how: Quantization | None, calibration: Sequence[Batch]) -> None:
    """Quantize an OVModel in place.

    Args:
        model: one of optimum-intel's OVModel classes, not compiled.
        how: `int8` stores and computes in 8 bits what calibration shows to bear it; `int8_weights`
            and `int4_weights` store weights in fewer bits and compute as before.
        calibration: batches that show what the model usually meets; `int8` needs them.

    Raises:
        WrongConfig: NNCF is not installed, or there are no calibration rows.
    """
    if how is not None:
        WAYS[how](needed("nncf", f"handler.quantization: {how}"), model, calibration)


def _int8(nncf: Any, model: Any, calibration: Sequence[Batch]) -> None:
    if not calibration:
        raise WrongConfig(
            "handler.quantization",
            "is int8, and there are no rows to calibrate with",
            "name a JSON lines file of requests as handler.calibration",
        )
    names = {name for each in model.model.inputs for name in each.names}
    model.model = nncf.quantize(
        model.model,
        nncf.Dataset(list(calibration), lambda batch: _feed(batch, names)),
        model_type=nncf.ModelType.TRANSFORMER,
        subset_size=len(calibration),
    )


def _int8_weights(nncf: Any, model: Any, calibration: Sequence[Batch]) -> None:
    nncf.compress_weights(model.model, mode=nncf.CompressWeightsMode.INT8_ASYM)


def _int4_weights(nncf: Any, model: Any, calibration: Sequence[Batch]) -> None:
    fallback = nncf.AdvancedCompressionParameters(
        group_size_fallback_mode=nncf.GroupSizeFallbackMode.ADJUST
    )
    nncf.compress_weights(
        model.model,
        mode=nncf.CompressWeightsMode.INT4_ASYM,
        group_size=64,
        advanced_parameters=fallback,
    )


def _feed(batch: Mapping[str, torch.Tensor], names: set[str]) -> dict[str, Any]:
    return {name: tensor.numpy() for name, tensor in batch.items() if name in names}


WAYS = {"int8": _int8, "int8_weights": _int8_weights, "int4_weights": _int4_weights}
