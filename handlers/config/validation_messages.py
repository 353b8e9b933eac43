"""pydantic's validation errors as one sentence for people."""

from __future__ import annotations

import re
import reprlib
import types
from collections.abc import Iterable, Sequence
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from handlers.config.choices import nearest

# Where there are several types, pydantic adds to a place the name of each that it tried.
ALTERNATIVE = re.compile(r"(str|int|float|bool)$|\w*\[")


def describe_validation_error(model: type[BaseModel], error: ValidationError) -> tuple[str, str]:
    """Return (what is wrong and where, what would be right) for the first mistake."""
    mistakes = error.errors(include_url=False)
    details, keys = mistakes[0], [str(part) for part in mistakes[0]["loc"]]
    if details["type"] == "extra_forbidden":
        return f"unknown key {'.'.join(keys)}", nearest(keys[-1], _keys(model, keys[:-1]))
    if details["type"] == "missing":
        return f"{'.'.join(keys)} is missing", "add it"
    if details["type"] == "value_error":
        problem, _, remedy = str(details["ctx"]["error"]).partition("; ")
        return f"{'.'.join(keys)} {problem}".strip(), remedy
    return _of_alternatives(mistakes)


def _of_alternatives(mistakes: Sequence[ErrorDetails]) -> tuple[str, str]:
    """Tell of the first mistake; where several types were tried, of the one that came farthest."""
    first, *_ = places = [_place(each["loc"]) for each in mistakes]
    place = max((each for each in places if each[: len(first)] == first), key=len)
    here = [each for each, keys in zip(mistakes, places, strict=True) if keys == place]
    right = dict.fromkeys(each["msg"] for each in here)
    return f"{'.'.join(place)} is {_shown(here[0]['input'])}", _expectation(*right)


def _place(parts: Iterable[str | int]) -> list[str]:
    return [part for part in map(str, parts) if not ALTERNATIVE.match(part)]


def _shown(value: Any) -> str:
    text = reprlib.repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _expectation(message: str, *alternatives: str) -> str:
    others = (each.removeprefix("Input should be ") for each in alternatives)
    told = " or ".join([message, *others]).replace("Input should", "it should", 1)
    return re.sub(r"a valid dictionary( or instance of \w+)?", "a section with keys", told)


def _keys(model: type[BaseModel], above: Iterable[str]) -> list[str]:
    for name in above:
        if not name.isdecimal():  # as a place in a list is
            model = _section(model.model_fields[name].annotation) or model
    return [field.alias or name for name, field in model.model_fields.items()]


def _section(annotation: Any) -> type[BaseModel] | None:
    if get_origin(annotation) in (Union, types.UnionType, list):
        return next(filter(None, map(_section, get_args(annotation))), None)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return None
