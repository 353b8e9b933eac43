"""The requests on which a YAML's exported model is calibrated and measured."""

from __future__ import annotations

import json
from pathlib import Path

from handlers.config.model_config import ModelConfig
from handlers.errors import WrongConfig
from handlers.protocols.base import is_chat
from handlers.schemas.request import Sample
from scripts.kit.places import ARTIFACTS


def samples(config_path: Path, config: ModelConfig) -> list[Sample]:
    """Read the JSON lines of `handler.calibration`, or the kit's own rows for the mode.

    A path in the YAML counts from the YAML's folder. A line is a body as clients send it: a list of
    inputs is as many requests. Blank lines are left.

    Raises:
        WrongConfig: the file is missing or no UTF-8, or a line is no request.
    """
    named = config.handler.calibration
    own = ARTIFACTS / config.handler.mode / "calibration.jsonl"
    path = config_path.parent / named if named else own
    # Not splitlines(): a text may hold other characters that end a line for it.
    lines = enumerate(_text(path).split("\n"), 1)
    filled = ((f"{path}, line {number}", line) for number, line in lines if line.strip())
    return [sample for place, line in filled for sample in _samples(line, place)]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise WrongConfig(
            "handler.calibration", f"{path} cannot be read ({error.strerror})", "mend the path"
        ) from None
    except UnicodeDecodeError:
        raise WrongConfig(
            "handler.calibration", f"{path} is not UTF-8", "save it in that encoding"
        ) from None


def _samples(line: str, place: str) -> list[Sample]:
    try:
        body = json.loads(line)
        inputs, parameters = body["inputs"], dict(body.get("parameters") or {})
    except (ValueError, TypeError, KeyError, AttributeError):
        raise WrongConfig(
            place, "is no request", 'write {"inputs": ...} as one line of JSON'
        ) from None
    if inputs == []:
        raise WrongConfig(place, "has an empty list of inputs", "add one, or take the line out")
    if not isinstance(inputs, list) or is_chat(inputs):
        return [Sample(inputs, parameters, place=place)]
    return [
        Sample(item, parameters, alone=False, place=f"{place}, inputs[{number}]")
        for number, item in enumerate(inputs)
    ]
