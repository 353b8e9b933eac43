"""How torch, ONNX Runtime and OpenVINO say that memory did not suffice, or that a device failed.

They raise bare errors, so that the messages tell. This imports none of them: configurations are
read without torch.
"""

from __future__ import annotations

from collections.abc import Sequence

# Parts of messages, in lower case.
MEMORY = (
    "out of memory",
    "can't allocate memory",
    "cannot allocate memory",
    "failed to allocate memory",
    "not enough memory",
    "alloc_failed",
    "bad_alloc",
    "bad allocation",
    "cublas_status_not_initialized",
)
DEVICE = ("cuda error", "hip error", "xpu error", "device-side assert", "device lost", "ecc error")
# After these errors of an accelerator the process can go on to use it.
HARMLESS = (
    "invalid argument",
    "invalid configuration argument",
    "invalid device function",
    "no kernel image",
    "not supported",
    "not_supported",
    "invalid_value",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error of a library means that memory did not suffice.

    Breaks when a library says it in other words, or torch's `OutOfMemoryError` has another name.
    """
    if isinstance(error, MemoryError) or _has_class(error, "OutOfMemoryError"):
        return True
    return _is_of_runtime(error) and _mentions(error, MEMORY)


def is_device_failure(error: BaseException) -> bool:
    """Return whether an accelerator failed, so that each further use in this process fails, too.

    Breaks when a library says it in other words, or torch's `AcceleratorError` has another name.
    """
    if not _is_of_runtime(error) or is_out_of_memory(error) or _mentions(error, HARMLESS):
        return False
    return _has_class(error, "AcceleratorError") or _mentions(error, DEVICE)


def _is_of_runtime(error: BaseException) -> bool:
    return isinstance(error, RuntimeError) or type(error).__module__.startswith("onnxruntime")


def _has_class(error: BaseException, name: str) -> bool:
    return any(each.__name__ == name for each in type(error).__mro__)


def _mentions(error: BaseException, parts: Sequence[str]) -> bool:
    message = str(error).lower()
    return any(part in message for part in parts)
