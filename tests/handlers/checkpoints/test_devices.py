from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from handlers.checkpoints.devices import pick_device, prepare_device, serving_device_type


@pytest.mark.parametrize(
    ("gpu", "cuda", "device"),
    [(None, True, "cpu"), (1, True, "cuda:1"), (0, False, "cpu")],
)
def test_a_gpu_is_used_only_if_the_frontend_assigns_one(
    monkeypatch: Any, gpu: int | None, cuda: bool, device: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert pick_device({"gpu_id": gpu}) == torch.device(device)


@pytest.mark.parametrize(
    ("device_type", "cuda", "found"),
    [
        (None, True, "cuda"),
        (None, False, "cpu"),
        ("cpu", True, "cpu"),
        ("gpu", True, "cuda"),
        ("gpu", False, "cuda"),
    ],
)
def test_workers_have_gpus_where_there_are_some_unless_the_yaml_says_cpu(
    monkeypatch: Any, device_type: str | None, cuda: bool, found: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert serving_device_type(device_type) == found


@pytest.fixture
def backends() -> Iterator[None]:
    """Restore what the test sets for all models of this process."""
    attention, convolutions = torch.backends.cuda.cudnn_sdp_enabled(), torch.backends.cudnn
    allowed = convolutions.allow_tf32
    yield
    torch.backends.cuda.enable_cudnn_sdp(attention)
    convolutions.allow_tf32 = allowed


@pytest.mark.usefixtures("backends")
@pytest.mark.parametrize(("device", "default"), [("cuda:1", False), ("cpu", True), ("mps", True)])
def test_nvidia_gpus_have_attention_without_plans_and_convolutions_in_float32(
    device: str, default: bool
) -> None:
    torch.backends.cuda.enable_cudnn_sdp(True)
    torch.backends.cudnn.allow_tf32 = True
    prepare_device(torch.device(device))
    assert torch.backends.cuda.cudnn_sdp_enabled() == default
    assert torch.backends.cudnn.allow_tf32 == default
