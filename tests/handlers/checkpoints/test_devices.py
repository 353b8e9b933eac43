from __future__ import annotations

from typing import Any

import pytest
import torch

from handlers.checkpoints.devices import pick_device, serving_device_type


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
