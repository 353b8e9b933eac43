from __future__ import annotations

import pytest
import torch

from hf_serve.handlers.compat.device_errors import is_device_failure, is_out_of_memory


def test_torch_says_that_memory_does_not_suffice() -> None:
    with pytest.raises(RuntimeError) as raised:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert is_out_of_memory(raised.value)
    assert not is_device_failure(raised.value)


def test_the_classes_of_torch_have_these_names() -> None:
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA"))
    assert is_device_failure(torch.AcceleratorError("device"))


@pytest.mark.parametrize(
    ("message", "memory", "device"),
    [
        ("CUDA out of memory. Tried to allocate 2 GiB", True, False),
        ("std::bad_alloc", True, False),
        ("CUDA error: device-side assert triggered", False, True),
        ("CUDA error: invalid argument", False, False),
        ("CUDA error: no kernel image is available for execution on the device", False, False),
        ("shapes cannot be multiplied", False, False),
    ],
)
def test_messages_tell_what_happened(message: str, *, memory: bool, device: bool) -> None:
    error = RuntimeError(message)
    assert (is_out_of_memory(error), is_device_failure(error)) == (memory, device)


def test_other_errors_say_nothing_of_memory() -> None:
    assert not is_out_of_memory(ValueError("the text is about running out of memory"))
    assert not is_device_failure(ValueError("cuda error"))
