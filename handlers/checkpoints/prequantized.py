"""Checkpoints that were quantized before they came here: transformers reads them by itself."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedConfig

from handlers.config.handler_section import HandlerSection
from handlers.errors import WrongCheckpoint, WrongConfig, summarize

# Where the package has another name than the method.
PACKAGES = {
    "auto-round": "'auto-round>=0.5'",
    "awq": "gptqmodel",
    "gptq": "gptqmodel optimum",
    "mxfp4": "kernels triton",
    "quanto": "optimum-quanto",
}


def method_of(config: PreTrainedConfig) -> str | None:
    """Return how a checkpoint says that it was quantized, in transformers' words."""
    found: Any = getattr(config, "quantization_config", None)
    if found is None:
        return None
    values = found if isinstance(found, dict) else found.to_dict()
    method = values.get("quant_method", "an unnamed method")
    return str(getattr(method, "value", method))


def check_dtype(config: PreTrainedConfig, handler: HandlerSection) -> None:
    """Check that a YAML leaves quantized weights to compute in what they were made for.

    Raises:
        WrongConfig: it names another dtype; parts of the model would have one, others the other.
    """
    made_for = str(config.dtype).removeprefix("torch.")
    named = handler.dtype if "dtype" in handler.model_fields_set else "auto"
    if config.dtype is not None and named not in ("auto", made_for):
        raise WrongConfig(
            "handler.dtype",
            f"is {named}, and the checkpoint's weights were quantized to compute in {made_for}",
            "leave dtype out",
        )


def check_exported(config: PreTrainedConfig, handler: HandlerSection) -> None:
    """Check that the weights to export are plain ones.

    Raises:
        WrongConfig: they were quantized.
    """
    if method := method_of(config):
        raise WrongConfig(
            "handler.save_mode",
            f"is {handler.save_mode}, and the checkpoint's weights were quantized with {method},"
            " which no export keeps",
            "use save_mode: pretrained, or export the checkpoint that it was quantized from",
        )


def lacks_package(method: str, error: Exception) -> WrongCheckpoint:
    """Return the complaint about a package that reading quantized weights needs."""
    return WrongCheckpoint(
        "config.json",
        f"says that the weights were quantized with {method}, and its package does not work here"
        f" ({summarize(error).rstrip('.')})",
        f"pip install {PACKAGES.get(method, method)} where the worker runs",
    )
