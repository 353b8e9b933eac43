"""What is private in Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def start(ray: Any, folder: Path, *, namespace: str, num_cpus: int, object_store_bytes: int) -> str:
    """Start a Ray of this machine alone, and return its address.

    Breaks when `ray.init` takes no `_temp_dir` for the folder of its sockets and logs.
    """
    context = ray.init(
        num_cpus=num_cpus,
        include_dashboard=False,
        object_store_memory=object_store_bytes,
        namespace=namespace,
        log_to_driver=False,
        _temp_dir=str(folder),
    )
    return str(context.address_info["gcs_address"])
