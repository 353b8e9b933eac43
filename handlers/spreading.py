"""`model_parallel: true`: the layers of one model over several devices."""

from __future__ import annotations

from typing import Any

import torch

from handlers.errors import WrongConfig


def placement(*, model_parallel: bool) -> dict[str, Any]:
    """Return what `from_pretrained` must be told so that layers are spread.

    Raises:
        WrongConfig: the layers are to be spread, and there is one device only.
    """
    if not model_parallel:
        return {}
    count = torch.accelerator.device_count() if torch.accelerator.is_available() else 0
    if count < 2:
        raise WrongConfig(
            "handler.model_parallel",
            f"is true, and this worker sees {count} accelerators",
            "give it several with parallelType: custom and parallelLevel, or set it to false",
        )
    return {"device_map": "balanced"}
