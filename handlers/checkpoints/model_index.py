"""`model_index.json` of a diffusers checkpoint: its pipeline, and its components.

    {"_class_name": "StableDiffusionPipeline", "unet": ["diffusers", "UNet2DConditionModel"], …}

Each component has a folder of its name. Other values are settings of the pipeline.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from handlers.config.quoting import quote
from handlers.errors import WrongCheckpoint, summarize

MODEL_INDEX = "model_index.json"
MAX_COMPONENTS = 50


@dataclass(frozen=True)
class ModelIndex:
    """The classes that a diffusers checkpoint is loaded with.

    Attributes:
        pipeline: the name of the pipeline's class.
        components: the library and the class of each component, by its name, which is its folder.
    """

    pipeline: str
    components: Mapping[str, tuple[str, str]]

    @classmethod
    def read(cls, path: Path) -> ModelIndex:
        """Read a `model_index.json`.

        Raises:
            WrongCheckpoint: it is missing, invalid, or names code of its own.
        """
        try:
            document = json.loads(path.read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            raise _wrong(f"cannot be read ({summarize(error)})") from None
        if not isinstance(document, dict) or "_class_name" not in document:
            raise _wrong("names no pipeline in _class_name")
        listed = {name: value for name, value in document.items() if isinstance(value, list)}
        pipeline = document["_class_name"]
        if not isinstance(pipeline, str) or not pipeline.isidentifier():
            raise _custom(f"_class_name {quote(pipeline)}")
        if len(listed) > MAX_COMPONENTS:
            raise _wrong(f"has {len(listed)} components, more than {MAX_COMPONENTS}")
        found = {name: _component(name, value) for name, value in listed.items()}
        return cls(pipeline, {name: names for name, names in found.items() if names})


def _component(name: str, value: list[Any]) -> tuple[str, str] | None:
    """Return the library and the class of a component; None for one that the checkpoint lacks."""
    if value == [None, None]:
        return None
    names = [name, *value]
    if len(value) != 2 or not all(isinstance(each, str) and each.isidentifier() for each in names):
        raise _custom(f"the component {quote(name)} as {quote(value)}")
    library, class_name = value
    return library, class_name


def _wrong(problem: str) -> WrongCheckpoint:
    return WrongCheckpoint(MODEL_INDEX, problem, "use a checkpoint that diffusers has saved")


def _custom(what: str) -> WrongCheckpoint:
    return WrongCheckpoint(
        MODEL_INDEX,
        f"has {what}, which is no class of diffusers or transformers",
        "use a checkpoint without custom code",
    )
