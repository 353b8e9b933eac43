"""The dtype that a model computes in, and weights that a checkpoint has quantized."""

from __future__ import annotations

import platform
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..config.handler_section import HandlerSection
from ..errors import WrongCheckpoint, WrongConfig, summarize

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedConfig


CPUINFO = Path("/proc/cpuinfo")
AMX_FLAG = "amx_bf16"
BFLOAT16_FLAGS = frozenset({AMX_FLAG, "avx512_bf16", "bf16"})
# Model types with layers that compute in float32 alone: Fourier transforms, and masks and positions
# that transformers makes in float32 whatever the weights are in.
FLOAT32_ONLY = frozenset({"canine", "ctrl", "deberta", "fnet", "mra", "reformer", "xlnet"})


def pick_dtype(name: str, device: torch.device) -> torch.dtype:
    """Return the torch dtype for `handler.dtype`.

    `auto` is bfloat16 if the device supports it in hardware, float16 on older GPUs, and float32
    otherwise.
    """
    import torch  # noqa: PLC0415 - packing asks for the flags of the processor without it

    if name != "auto":
        dtype: torch.dtype = getattr(torch, name)
        return dtype
    if device.type == "cpu":
        return torch.bfloat16 if cpu_has_bfloat16() else torch.float32
    if device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        return torch.float16
    return torch.bfloat16


def name_of(dtype: torch.dtype) -> str:
    """Return the name of a dtype, as `handler.dtype` has it."""
    return str(dtype).removeprefix("torch.")


def cpu_has_bfloat16() -> bool:
    """Return whether the processor supports bfloat16 in hardware; emulation is slow."""
    return bool(BFLOAT16_FLAGS & cpu_flags())


def cpu_has_amx() -> bool:
    """Return whether the processor has Intel's matrix extensions."""
    return AMX_FLAG in cpu_flags()


def cpu_flags() -> set[str]:
    """Return the flags of the processor; none where they are not known."""
    if platform.system() != "Linux" or not CPUINFO.exists():
        return set()
    lines = CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
    flags = (line.partition(":")[2] for line in lines if line.lower().startswith(("flags", "feat")))
    return set(next(flags, "").split())


# What pip installs for quantization methods. The name of a method is often no package.
PACKAGES = {
    "aqlm": "'aqlm[gpu,cpu]'",
    "auto-round": "'auto-round>=0.5'",
    "awq": "gptqmodel",
    "bitsandbytes": "bitsandbytes",
    "compressed-tensors": "compressed-tensors",
    "eetq": "kernels",
    "fbgemm_fp8": "kernels",
    "fouroversix": "fouroversix",
    "fp8": "kernels triton",
    "fp_quant": "fp_quant",
    "gguf": "kernels",
    "gptq": "gptqmodel optimum",
    "higgs": "flute-kernel fast_hadamard_transform",
    "hqq": "hqq",
    "metal": "kernels",
    "mxfp4": "kernels triton",
    "mxfp8": "kernels triton",
    "nvfp4": "kernels",
    "quanto": "optimum-quanto",
    "quark": "amd-quark",
    "sinq": "sinq",
    "spqr": "'spqr_quant[gpu]'",
    "torchao": "torchao",
    "vptq": "vptq",
}

# What they import, where nothing else reads their weights.
REQUIRED = {
    "auto-round": ("auto_round",),
    "awq": ("gptqmodel",),
    "bitsandbytes": ("bitsandbytes",),
    "compressed-tensors": ("compressed_tensors",),
    "gptq": ("gptqmodel", "optimum"),
    "quanto": ("optimum",),
    "torchao": ("torchao",),
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


def check_float32_only(config: PreTrainedConfig, handler: HandlerSection) -> None:
    """Check that a model whose layers compute in float32 alone is not asked for fewer bits.

    Raises:
        WrongConfig: the YAML sets a dtype in which each request would fail.
    """
    if config.model_type in FLOAT32_ONLY and handler.dtype not in ("auto", "float32"):
        raise WrongConfig(
            "handler.dtype",
            f"is {handler.dtype}, and {config.model_type} models have layers of float32 alone",
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


def why_not_installed(config: PreTrainedConfig) -> WrongCheckpoint | None:
    """Return the error of a package that quantized weights need; None where nothing is missing."""
    method = quantization_method(config)
    if method not in REQUIRED:
        return None
    missing = [name for name in REQUIRED[method] if find_spec(name) is None]
    return (
        missing_package(method, ImportError(f"No module named {missing[0]!r}")) if missing else None
    )


def missing_package(method: str, error: Exception) -> WrongCheckpoint:
    """Return the error for a missing package that a quantization method needs."""
    packages = PACKAGES.get(method)
    install = f"pip install {packages}" if packages else "install the package that this names"
    return WrongCheckpoint(
        "config.json",
        f"says that the weights were quantized with {method}, and its package cannot be imported"
        f" ({summarize(error).rstrip('.')})",
        f"{install} in the environment of the worker",
    )
