"""Whole numbers that are written with a point: 2.0 is an integer for JSON Schema.

Clients whose numbers all are doubles, such as protobuf's, write no others.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, model_validator


class WholeNumbers(BaseModel):
    """Base of what takes 2.0 where it takes 2; a field of fractions takes both as well."""

    @model_validator(mode="before")
    @classmethod
    def _read_whole_numbers(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {name: _with_whole_numbers(value) for name, value in values.items()}


def _with_whole_numbers(value: Any) -> Any:
    """Return a value with its whole numbers as integers; of a list or an object, what it holds."""
    if isinstance(value, list):
        return [_whole(each) for each in value]
    if isinstance(value, dict):
        return {name: _whole(each) for name, each in value.items()}
    return _whole(value)


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value
