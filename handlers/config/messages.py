"""Words of requests and YAML files in messages, and pydantic's errors as sentences."""

from __future__ import annotations

import re
import types
from collections.abc import Iterable, Sequence, Sized
from difflib import get_close_matches
from itertools import islice
from reprlib import Repr
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ..errors import BadRequest

WIDTH = 60
MAX_NAMES = 12
# The time of a comparison grows with both words, and clients send words of any length.
MAX_WORD = 60
MAX_CHOICES = 200
# There are more modes than names of other kinds.
MAX_SHOWN = 35
_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = WIDTH - 20


def shorten(text: str, width: int = WIDTH) -> str:
    """Return a text, cut to a number of characters where it is longer."""
    return text if len(text) <= width else f"{text[: width - 3]}..."


def quote(value: Any) -> str:
    """Return a value as Python writes it, abbreviated where that is long."""
    try:
        return shorten(_SHORT.repr(value))
    except ValueError:  # Python refuses to write numbers of thousands of digits
        return "a number of too many digits"


class RepeatedField(list[Any]):
    """The values of a field that a form has several times; `name` is its name in the form."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


def check_single(value: Any) -> None:
    """Refuse the values of a repeated field where there can be one value only.

    Raises:
        BadRequest: with their number.
    """
    if isinstance(value, RepeatedField):
        raise BadRequest(f"{value.name} came in {len(value):,} fields of the form; send one.")


def enumerate_names(
    names: Iterable[str], separator: str = ", ", limit: int = MAX_NAMES, width: int = WIDTH
) -> str:
    """Return the first names of a collection, each shortened, and how many others there are."""
    remaining = iter(names)
    shown = [shorten(name, width) for name in islice(remaining, limit)]
    others = len(names) - len(shown) if isinstance(names, Sized) else sum(1 for _ in remaining)
    return separator.join([*shown, f"and {others:,} more"] if others else shown)


# What pydantic appends to the location of a key that is wrong.
KEY = "[key]"
# For a union, pydantic appends the name of each member that it tried to the location.
UNION_MEMBER = re.compile(r"(constrained-)?(str|int|float|bool)$|\w*\[")


def describe_validation_error(model: type[BaseModel], error: ValidationError) -> tuple[str, str]:
    """Return the problem and the remedy of the first validation error.

    Args:
        model: the validated model, whose keys are suggested for an unknown key.
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
    is_key = details["type"] == "invalid_key" or keys[-1:] == [KEY]
    if is_key and not isinstance(details["input"], str):
        # YAML reads the keys `no`, `on` and `1` as other types.
        *section, _ = (key for key in _path(keys) if key != KEY)
        place = f"{_dotted(section)} has" if section else "has"
        return f"{place} the key {quote(details['input'])}, which is no text", "write it in quotes"
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


def suggest(word: str, choices: list[str]) -> str:
    """Return a hint for an unknown word: the closest choice, or the list of choices."""
    if closest := _closest(word, choices):
        return f"did you mean {closest!r}?"
    return f"use one of {enumerate_names(choices, limit=MAX_SHOWN)}"


def _closest(word: str, choices: list[str]) -> str | None:
    if len(word) > MAX_WORD:
        return None
    candidates = [choice for choice in choices[:MAX_CHOICES] if len(choice) <= MAX_WORD]
    return next(iter(get_close_matches(word, candidates, n=1)), None)
