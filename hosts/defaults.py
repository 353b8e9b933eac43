"""What hosts do where neither the YAML nor an option says otherwise.

This module imports nothing of `handlers`, as :mod:`hf_serve.hosts.archives` does not.
"""

from __future__ import annotations

# Limits of config.properties.
MAX_REQUEST_BYTES = 10_485_760
MAX_RESPONSE_BYTES = 67_108_864
# Requests that wait for a model, without `jobQueueSize`.
QUEUE_SIZE = 256
# A line of the log of a server without TorchServe.
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
