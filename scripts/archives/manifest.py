"""Write MAR-INF/MANIFEST.json, the manifest of a model archive."""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime

from hf_serve.handlers.config.messages import quote
from hf_serve.handlers.config.model_config import CONFIG_FILE
from hf_serve.handlers.errors import WrongConfig

HANDLER_FILE = "transformers_handler.py"
MANIFEST_FILE = "MAR-INF/MANIFEST.json"
ARCHIVER_VERSION = "0.12.0"  # the version of torch-model-archiver that has this format
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
# It is a part of URLs.
VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*")
EPOCH = "SOURCE_DATE_EPOCH"
SECONDS = re.compile(r"-?[0-9]{1,15}")
EARLIEST_TIMESTAMP = 315532800  # 1980-01-01, the earliest date of the zip format
LATEST_TIMESTAMP = 4354819199  # 2107-12-31, its last second


def timestamp() -> datetime:
    """Return the modification time of all files in an archive: SOURCE_DATE_EPOCH, or 1980.

    It does not depend on the current time, so that archives are reproducible.

    Raises:
        WrongConfig: the variable has no number of seconds, or one that no zip file can have.
    """
    named = os.environ.get(EPOCH) or str(EARLIEST_TIMESTAMP)
    if not SECONDS.fullmatch(named) or int(named) > LATEST_TIMESTAMP:
        raise WrongConfig(
            EPOCH,
            f"is {quote(named)}, which is no time that an archive can have",
            f"set it to seconds since 1970, up to {LATEST_TIMESTAMP}, or unset it",
        )
    return datetime.fromtimestamp(max(int(named), EARLIEST_TIMESTAMP), UTC)


def manifest(name: str, version: str) -> bytes:
    """Return the manifest of a model.

    Raises:
        WrongConfig: TorchServe does not accept the name, or no URL can have the version.
    """
    if not NAME.fullmatch(name):
        raise WrongConfig(
            f"{name}.yaml",
            "the model takes its name from the file, and TorchServe does not accept this name",
            "use letters, digits, '_', '-' and '.'",
        )
    if not VERSION.fullmatch(version):
        raise WrongConfig(
            "--version",
            f"is {quote(version)}, which cannot be a part of a URL",
            "use letters, digits, '_', '-', '.' and '+'",
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
