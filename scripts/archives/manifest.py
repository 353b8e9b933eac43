"""Write MAR-INF/MANIFEST.json, the manifest of a model archive."""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime

from hf_serve.handlers.config.model_config import CONFIG_FILE
from hf_serve.handlers.errors import WrongConfig

HANDLER_FILE = "transformers_handler.py"
MANIFEST_FILE = "MAR-INF/MANIFEST.json"
ARCHIVER_VERSION = "0.12.0"  # the version of torch-model-archiver that has this format
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
EARLIEST_TIMESTAMP = 315532800  # 1980-01-01, the earliest date of the zip format


def timestamp() -> datetime:
    """Return the modification time of all files in an archive: SOURCE_DATE_EPOCH, or 1980.

    It does not depend on the current time, so that archives are reproducible.
    """
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH", EARLIEST_TIMESTAMP))
    return datetime.fromtimestamp(max(seconds, EARLIEST_TIMESTAMP), UTC)


def manifest(name: str, version: str) -> bytes:
    """Return the manifest of a model.

    Raises:
        WrongConfig: TorchServe does not accept the name.
    """
    if not NAME.fullmatch(name):
        raise WrongConfig(
            f"{name}.yaml",
            "the model takes its name from the file, and TorchServe does not accept this name",
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
        "archiverVersion": ARCHIVER_VERSION,
    }
    return json.dumps(document, indent=2).encode()
