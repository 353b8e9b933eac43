"""Two nodes of Ray on this machine; prints the address and the second node's processes.

It runs in the environment with Ray until its standard input ends.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from hf_serve.hosts.ray_environment import import_ray

OBJECT_STORE_BYTES = 100 << 20


def main() -> None:
    """Start the nodes and wait."""
    import_ray(local=False)
    from ray.cluster_utils import Cluster  # noqa: PLC0415

    settings: dict[str, Any] = {
        "num_cpus": 2,
        "object_store_memory": OBJECT_STORE_BYTES,
        "include_dashboard": False,
    }
    cluster = Cluster(initialize_head=True, head_node_args=settings)
    second = cluster.add_node(num_cpus=2, object_store_memory=OBJECT_STORE_BYTES)
    raylet = second.all_processes["raylet"][0].process.pid
    print(json.dumps({"address": cluster.address, "raylet": raylet}), flush=True)
    sys.stdin.read()
    cluster.shutdown()


if __name__ == "__main__":
    main()
