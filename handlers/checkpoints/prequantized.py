"""Checkpoints with quantized weights, which transformers loads natively."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedConfig

from handlers.config.handler_section import HandlerSection
from handlers.errors import WrongCheckpoint, WrongConfig, summarize

# The packages of quantization methods whose name differs.
PACKAGES = {
    "auto-round": "'auto-round>=0.5'",
    "awq": "gptqmodel",
    "gptq": "gptqmodel optimum",
    "mxfp4": "kernels triton",
    "quanto": "optimum-quanto",
}


def quantization_method(config: PreTrainedConfig) -> str | None:
    """Return the `quant_method` of a checkpoint; None if its weights are not quantized."""
    quantization: Any = getattr(config, "quantization_config", None)
    if quantization is None:
        return None
    values = quantization if isinstance(quantization, dict) else quantization.to_dict()
    method = values.get("quant_method", "an unnamed method")
    return str(getattr(method, "value", method))


def check_dtype(config: PreTrainedConfig, handler: HandlerSection) -> None:
    """Check that the YAML does not change the dtype that quantized weights compute in.

    Raises:
        WrongConfig: the YAML sets another dtype, so that the layers would have mixed dtypes.
    """
    expected = str(config.dtype).removeprefix("torch.")
    dtype = handler.dtype if "dtype" in handler.model_fields_set else "auto"
    if config.dtype is not None and dtype not in ("auto", expected):
        raise WrongConfig(
            "handler.dtype",
            f"is {dtype}, and the checkpoint's weights were quantized to compute in {expected}",
            "leave dtype out",
        )


def check_not_quantized(config: PreTrainedConfig, handler: HandlerSection) -> None:
    """Check that the weights to export are not quantized.

    Raises:
        WrongConfig: the weights are quantized.
    """
    if method := quantization_method(config):
        raise WrongConfig(
            "handler.save_mode",
            f"is {handler.save_mode}, and the checkpoint's weights were quantized with {method},"
            " which no export keeps",
            "use save_mode: pretrained, or export the checkpoint that it was quantized from",
        )


def missing_package(method: str, error: Exception) -> WrongCheckpoint:
    """Return the error for a missing package that a quantization method needs."""
    return WrongCheckpoint(
        "config.json",
        f"says that the weights were quantized with {method}, and its package cannot be imported"
        f" ({summarize(error).rstrip('.')})",
        f"pip install {PACKAGES.get(method, method)} in the environment of the worker",
    )
