"""MAR-INF/MANIFEST.json: what TorchServe reads first in an archive."""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime

from handlers.errors import WrongConfig

HANDLER_FILE = "transformers_handler.py"
CONFIG_FILE = "model-config.yaml"
MANIFEST_FILE = "MAR-INF/MANIFEST.json"
ARCHIVER = "0.12.0"  # the torch-model-archiver whose format this is
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
EARLIEST_TIMESTAMP = 315532800  # 1980-01-01, the earliest that a zip can hold


def timestamp() -> datetime:
    """Return the time that all files of an archive bear: SOURCE_DATE_EPOCH, or 1980.

    It is not the time of packing, so the same input makes the same bytes.
    """
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH", EARLIEST_TIMESTAMP))
    return datetime.fromtimestamp(max(seconds, EARLIEST_TIMESTAMP), UTC)


def manifest(name: str, version: str) -> bytes:
    """Return the manifest of a model.

    Raises:
        WrongConfig: when TorchServe would not take the name.
    """
    if not NAME.fullmatch(name):
        raise WrongConfig(
            f"{name}.yaml",
            "a model is named after its file, and TorchServe does not take this name",
            "use letters, digits, '_', '-' and '.'",
        )
    document = {
        "createdOn": timestamp().strftime("%d/%m/%Y %H:%M:%S"),
        "runtime": "python",
        "model": {
            "modelName": name,
            "handler": HANDLER_FILE,
            "modelVersion": version,
            "configFile": CONFIG_FILE,
        },
        "archiverVersion": ARCHIVER,
    }
    return json.dumps(document, indent=2).encode()
