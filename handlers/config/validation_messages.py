"""Readable messages for pydantic's validation errors."""

from __future__ import annotations

import re
import types
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from handlers.config.choices import suggest
from handlers.config.quoting import quote, shorten

# For a union, pydantic appends the name of each member that it tried to the location.
UNION_MEMBER = re.compile(r"(str|int|float|bool)$|\w*\[")


def describe_validation_error(model: type[BaseModel], error: ValidationError) -> tuple[str, str]:
    """Return the problem and the remedy of the first validation error.

    Args:
        model: the validated model, whose keys are suggested for an unknown key.
        error: the validation error.
    """
    errors = error.errors(include_url=False)
    details, keys = errors[0], [str(part) for part in errors[0]["loc"]]
    if details["type"] == "extra_forbidden":
        return f"unknown key {_dotted(keys)}", suggest(keys[-1], _keys(model, keys[:-1]))
    if details["type"] == "missing":
        return f"{_dotted(keys)} is missing", "add it"
    if details["type"] == "value_error":
        problem, _, remedy = str(details["ctx"]["error"]).partition("; ")
        return f"{_dotted(keys)} {problem}".strip(), remedy
    return _describe_type_error(errors)


def _dotted(keys: Iterable[str]) -> str:
    return ".".join(map(shorten, keys))


def _describe_type_error(errors: Sequence[ErrorDetails]) -> tuple[str, str]:
    """Describe the first error; for a union, the error with the deepest location."""
    first, *_ = paths = [_path(each["loc"]) for each in errors]
    deepest = max((path for path in paths if path[: len(first)] == first), key=len)
    selected = [each for each, path in zip(errors, paths, strict=True) if path == deepest]
    messages = dict.fromkeys(each["msg"] for each in selected)
    return f"{_dotted(deepest)} is {quote(selected[0]['input'])}", _expectation(*messages)


def _path(parts: Iterable[str | int]) -> list[str]:
    return [part for part in map(str, parts) if not UNION_MEMBER.match(part)]


def _expectation(message: str, *alternatives: str) -> str:
    others = (each.removeprefix("Input should be ") for each in alternatives)
    text = " or ".join([message, *others]).replace("Input should", "it should", 1)
    return re.sub(r"a valid dictionary( or instance of \w+)?", "a section with keys", text)


def _keys(model: type[BaseModel], parents: Iterable[str]) -> list[str]:
    """Return the keys of a nested section, whose parents can include list indices."""
    for name in parents:
        if not name.isdecimal():
            model = _section(model.model_fields[name].annotation) or model
    return [field.alias or name for name, field in model.model_fields.items()]


def _section(annotation: Any) -> type[BaseModel] | None:
    if get_origin(annotation) in (Annotated, Union, types.UnionType, list):
        return next(filter(None, map(_section, get_args(annotation))), None)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return None
