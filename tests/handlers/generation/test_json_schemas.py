from __future__ import annotations

from typing import Any

import pytest

from hf_serve.handlers.generation.json_schemas import closed, relaxed

A, B = {"a": {"type": "string"}}, {"b": {"type": "integer"}}


def test_objects_have_the_keys_of_their_properties_alone() -> None:
    inner = {"properties": A, "required": ["a"]}
    schema = {
        "type": "object",
        "properties": {
            "one": inner,
            "many": {"type": "array", "items": inner},
            "either": {"anyOf": [inner, {"type": "null"}]},
            "properties": inner,
        },
        "$defs": {"x": inner},
    }
    found = closed(schema)
    each: dict[str, Any] = {**inner, "additionalProperties": False}
    assert found == {
        **schema,
        "properties": {
            "one": each,
            "many": {"type": "array", "items": each},
            "either": {"anyOf": [each, {"type": "null"}]},
            "properties": each,
        },
        "$defs": {"x": each},
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {"type": "object"},
        {"properties": A, "additionalProperties": True},
        {"properties": A, "additionalProperties": {"type": "integer"}},
        {"properties": A, "patternProperties": {"^x": True}},
        # A key may have to be there that the properties do not name.
        {"properties": A, "required": ["a", "b"]},
        {"properties": A, "required": [[]]},
        {"properties": 5},
        # Each of several schemas knows its own keys alone.
        {"allOf": [{"properties": A}, {"properties": B}]},
        {"properties": A, "anyOf": [{"properties": B}, {"required": ["a"]}]},
        {"properties": A, "allOf": [{"anyOf": [{"properties": B}, {"properties": B}]}]},
        {"$defs": {"x/y": {"properties": A}}, "$ref": "#/$defs/x~1y", "properties": B},
        {"definitions": {"x": {"properties": A}}, "allOf": [{"$ref": "#/definitions/x"}, True]},
        {"properties": {"self": {"$ref": "#"}}, "allOf": [{"$ref": "#"}]},
    ],
)
def test_objects_that_may_have_other_keys_stay_open(schema: Any) -> None:
    assert closed(schema) == schema


def test_a_reference_alone_is_that_object() -> None:
    schema = {"$defs": {"x": {"properties": A}}, "allOf": [{"$ref": "#/$defs/x"}]}
    assert closed(schema)["$defs"]["x"]["additionalProperties"] is False


def test_what_a_compiler_lacks_is_left_out_and_nothing_else() -> None:
    schema = {
        "$schema": "https://example.org/own",
        "properties": {
            "pattern": {"type": "string", "pattern": "^(?!x)", "maxLength": 4},
            "plain": {"type": "string", "pattern": "^x", "format": "date"},
            "elsewhere": {"$ref": "https://example.org/x", "title": "X"},
            "here": {"$ref": "#/$defs/x"},
        },
        "patternProperties": {"^(?=y)": {"type": "integer"}},
        "additionalProperties": False,
        "$defs": {"x": {"type": "integer", "minimum": 2, "maximum": 9}},
    }
    assert relaxed(schema, lambda alone: "(?" in str(alone) or "minimum" in str(alone)) == {
        "properties": {
            "pattern": {"type": "string", "maxLength": 4},
            "plain": {"type": "string", "pattern": "^x", "format": "date"},
            "elsewhere": {"title": "X"},
            "here": {"$ref": "#/$defs/x"},
        },
        "additionalProperties": True,
        "$defs": {"x": {"type": "integer", "maximum": 9}},
    }
