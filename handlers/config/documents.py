"""JSON and YAML of checkpoints and archives, which anybody may have written."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import yaml

from ..errors import WrongCheckpoint

TOO_DEEP = "it is nested too deeply"
# The tag of the key `<<`, whose values are added to a section.
MERGE = "tag:yaml.org,2002:merge"


def read_json(path: Path) -> Any:
    """Return the value in a JSON file.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not JSON, or is nested too deeply.
    """
    return parse_json(path.read_bytes())


@dataclass(frozen=True)
class PackedFacts:
    """What packing has found about a model, as a JSON file in the directory of the model."""

    file: ClassVar[str]

    def write(self, folder: Path) -> None:
        """Write the facts that are not null to the directory of a model."""
        facts = {name: value for name, value in asdict(self).items() if value is not None}
        text = json.dumps(facts, indent=2) + "\n"
        (folder / self.file).write_text(text, encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the facts of a file.

        Raises:
            WrongCheckpoint: the file is damaged.
        """
        try:
            return cls(**read_json(path))
        except (ValueError, TypeError):
            raise WrongCheckpoint(cls.file, "is damaged", "pack the model again") from None


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


def repeated_key(content: str) -> str | None:
    """Return the first key that a section of a YAML text has twice, with the names of its sections.

    The last of them counts for a parser, in silence.

    Raises:
        yaml.YAMLError: it is not YAML.
    """
    waiting = [("", yaml.compose(content, yaml.SafeLoader))]
    # An alias is the node that it stands for.
    seen = set[int]()
    while waiting:
        place, node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += [(place, each) for each in node.value]
        elif isinstance(node, yaml.MappingNode):
            keys = [key for key, _ in node.value if key.tag != MERGE]
            counts = Counter(map(_value_of_key, keys))
            if repeated := next((each for each in keys if counts[_value_of_key(each)] > 1), None):
                return f"{place}{repeated.value}"
            waiting += [(f"{place}{key.value}.", value) for key, value in node.value]
    return None


def _value_of_key(key: yaml.Node) -> Any:
    """Return what a parser takes a key for: `yes` and `true` are one key, `1` and `'1'` are two."""
    if isinstance(key, yaml.ScalarNode):
        with suppress(ValueError, LookupError, TypeError, AttributeError, yaml.YAMLError):
            return yaml.SafeLoader("").construct_object(key)
    return key.tag, str(key.value)
