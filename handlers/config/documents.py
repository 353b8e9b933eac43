"""JSON and YAML of checkpoints and archives, which anybody may have written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

TOO_DEEP = "it is nested too deeply"


def read_json(path: Path) -> Any:
    """Return the value in a JSON file.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not JSON, or is nested too deeply.
    """
    return parse_json(path.read_bytes())


def parse_json(content: bytes | str) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: it is not JSON, or is nested too deeply.
    """
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError(TOO_DEEP) from None


def parse_yaml(content: bytes | str) -> Any:
    """Return the value of a YAML text.

    Raises:
        yaml.YAMLError: it is not YAML, is nested too deeply, or has a value of another type.
    """
    try:
        return yaml.safe_load(content)
    except RecursionError:
        raise yaml.YAMLError(TOO_DEEP) from None
    # A value that does not fit its type, such as the date 2024-13-45 or `!!bool maybe`.
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise yaml.YAMLError(f"a value is wrong ({error!s:.100})") from None
