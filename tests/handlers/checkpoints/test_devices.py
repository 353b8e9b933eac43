from __future__ import annotations

from typing import Any

import pytest
import torch

from handlers.checkpoints.devices import pick_device


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
