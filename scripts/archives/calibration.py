"""Read the requests used to calibrate and evaluate an exported model."""

from __future__ import annotations

import json
from pathlib import Path

from handlers import formats
from handlers.config.model_config import ModelConfig
from handlers.errors import WrongConfig
from handlers.protocols.base import is_chat
from handlers.types.request import Sample
from scripts.paths import ARTIFACTS, calibration_file


def samples(config_path: Path, config: ModelConfig, artifacts: Path = ARTIFACTS) -> list[Sample]:
    """Read the JSON lines of `handler.calibration`, or the file of the mode in `artifacts`.

    The path is relative to the YAML file. Each line is a request body; a list of inputs counts as
    one request per item. Blank lines are skipped. A checkpoint that is not exported needs none, so
    that the default file may be missing.

    Raises:
        WrongConfig: the file cannot be read as UTF-8, or a line is not a valid request.
    """
    path = calibration_file(config_path, config, artifacts)
    named = config.handler.calibration
    if not (path.exists() or named or formats.plan(config).handler.is_exported):
        return []
    # Not splitlines(), which also splits at other line separators inside a text.
    lines = enumerate(_text(path).split("\n"), 1)
    filled = ((f"{path}, line {number}", line) for number, line in lines if line.strip())
    return [sample for place, line in filled for sample in _samples(line, place)]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise WrongConfig(
            "handler.calibration", f"{path} cannot be read ({error.strerror})", "correct the path"
        ) from None
    except UnicodeDecodeError:
        raise WrongConfig(
            "handler.calibration", f"{path} is not UTF-8", "save it as UTF-8"
        ) from None


def _samples(line: str, place: str) -> list[Sample]:
    try:
        body = json.loads(line)
        inputs, parameters = body["inputs"], dict(body.get("parameters") or {})
    except (ValueError, TypeError, KeyError, AttributeError):
        raise WrongConfig(
            place, "is not a request", 'write {"inputs": ...} as one line of JSON'
        ) from None
    if inputs == []:
        raise WrongConfig(place, "has an empty list of inputs", "add one, or remove the line")
    if not isinstance(inputs, list) or is_chat(inputs):
        return [Sample(inputs, parameters, place=place)]
    return [
        Sample(item, parameters, alone=False, place=f"{place}, inputs[{number}]")
        for number, item in enumerate(inputs)
    ]
