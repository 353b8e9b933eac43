"""The requests on which a YAML's exported model is calibrated and measured."""

from __future__ import annotations

import json
from pathlib import Path

from handlers.config import ModelConfig
from handlers.errors import WrongConfig
from handlers.requests import Request
from scripts.kit.places import ARTIFACTS


def samples(config_path: Path, config: ModelConfig) -> list[Request]:
    """Read the JSON lines of `handler.calibration`, or the kit's own rows for the mode.

    A path in the YAML counts from the YAML's folder. A line is a body as clients send it.

    Raises:
        WrongConfig: the file is missing, or a line is no request.
    """
    named = config.handler.calibration
    own = ARTIFACTS / config.handler.mode / "calibration.jsonl"
    path = config_path.parent / named if named else own
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise WrongConfig(
            "handler.calibration", f"{path} cannot be read ({error.strerror})", "mend the path"
        ) from None
    return [_request(line, f"{path}, line {number}") for number, line in enumerate(lines, 1)]


def _request(line: str, where: str) -> Request:
    try:
        body = json.loads(line)
        return Request(body["inputs"], dict(body.get("parameters") or {}))
    except (ValueError, TypeError, KeyError, AttributeError):
        raise WrongConfig(
            where, "is no request", 'write {"inputs": ...} as one line of JSON'
        ) from None
