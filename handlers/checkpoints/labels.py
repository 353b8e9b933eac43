"""Class names, read from `index_to_name.json` or else from the checkpoint's `id2label`.

`index_to_name.json` has either form of TorchServe's example: `{"0": "Accepted"}` or
`{"label_list": "[O, B-PER]"}`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from handlers.errors import WrongCheckpoint

FILE = "index_to_name.json"


def read_labels(directory: Path, id2label: Mapping[int, str], count: int) -> list[str]:
    """Return the class names by class id.

    Args:
        directory: the directory of `index_to_name.json`, which is optional.
        id2label: the labels of the checkpoint's config.
        count: the number of classes.

    Raises:
        WrongCheckpoint: `index_to_name.json` cannot be read or does not name every class.
    """
    path = directory / FILE
    if not path.is_file():
        return [str(id2label.get(number, f"LABEL_{number}")) for number in range(count)]
    labels = _parse(path)
    if len(labels) != count:
        raise WrongCheckpoint(
            FILE,
            f"names {len(labels)} classes, and the checkpoint has {count}",
            "name each class once, or leave the file out to use the checkpoint's id2label",
        )
    return labels


def _parse(path: Path) -> list[str]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if "label_list" in document:
            return _parse_list(document["label_list"])
        return [_name(document[str(number)]) for number in range(len(document))]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise WrongCheckpoint(
            FILE,
            f"cannot be read ({type(error).__name__}: {error})",
            'write {"0": "first", "1": "second"} or {"label_list": "[first, second]"}',
        ) from None


def _parse_list(labels: str | list[str]) -> list[str]:
    if isinstance(labels, list):
        return [str(label) for label in labels]
    return [label.strip(" '\"") for label in labels.strip().strip("[]").split(",")]


def _name(value: Any) -> str:
    return str(value[-1] if isinstance(value, list) else value)
