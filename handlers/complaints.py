"""pydantic's validation errors as one sentence for people."""

from __future__ import annotations

import re
import reprlib
import types
from collections.abc import Iterable
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from handlers.words import nearest


def first_complaint(model: type[BaseModel], error: ValidationError) -> tuple[str, str]:
    """Return (what is wrong and where, what would be right) for the first mistake."""
    details = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in details["loc"])
    if details["type"] == "extra_forbidden":
        *above, key = (str(part) for part in details["loc"])
        return f"unknown key {place}", nearest(key, _keys(model, above))
    if details["type"] == "missing":
        return f"{place} is missing", "add it"
    if details["type"] == "value_error":
        problem, _, remedy = str(details["ctx"]["error"]).partition("; ")
        return f"{place} {problem}".strip(), remedy
    return f"{place} is {_shown(details['input'])}", _expectation(details["msg"])


def _shown(value: Any) -> str:
    text = reprlib.repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _expectation(message: str) -> str:
    message = re.sub(r"a valid dictionary or instance of \w+", "a section with keys", message)
    return message.replace("Input should", "it should", 1)


def _keys(model: type[BaseModel], above: Iterable[str]) -> list[str]:
    for name in above:
        model = _section(model.model_fields[name].annotation) or model
    return [field.alias or name for name, field in model.model_fields.items()]


def _section(annotation: Any) -> type[BaseModel] | None:
    if get_origin(annotation) in (Union, types.UnionType):
        return next(filter(None, map(_section, get_args(annotation))), None)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return None
