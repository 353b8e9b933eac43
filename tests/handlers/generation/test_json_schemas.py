from __future__ import annotations

from typing import Any

import pytest

from hf_serve.handlers.generation.json_schemas import closed, json_rule, relaxed, schema_at

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
        {"allOf": [{"properties": A}, {"properties": B}], "unevaluatedProperties": False},
        {"properties": A, "unevaluatedProperties": {"type": "integer"}},
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


@pytest.mark.parametrize("nothing", [False, {"not": {}}])
def test_an_object_without_unevaluated_properties_has_its_own_alone(nothing: Any) -> None:
    schema = {"properties": A, "required": ["a"], "unevaluatedProperties": nothing}
    closed_one = {"properties": A, "required": ["a"], "additionalProperties": False}
    assert closed(schema) == closed_one


@pytest.mark.parametrize(
    ("reference", "escaped"),
    [
        ("#/$defs/List[A]", "#/$defs/List%5BA%5D"),
        ("#/$defs/Map«A»", "#/$defs/Map%C2%ABA%C2%BB"),
        ("#/$defs/List%5BA%5D", "#/$defs/List%5BA%5D"),
        ("#/$defs/a~1b", "#/$defs/a~1b"),
    ],
)
def test_a_reference_is_escaped_for_the_compiler(reference: str, escaped: str) -> None:
    rule = json_rule({"properties": {"a": {"$ref": reference}}}, strict=False)
    assert f'"$ref": "{escaped}"' in rule


def test_a_reference_names_a_part_of_a_schema() -> None:
    schema = {"$defs": {"a/b": {"anyOf": [A, B]}, "c d": B}}
    assert schema_at(schema, "#") is schema
    assert schema_at(schema, "#/$defs/a~1b/anyOf/1") == schema_at(schema, "#/$defs/c%20d") == B
    for nowhere in ("#/x", "#/$defs/a~1b/anyOf/2", "other.json#/$defs", "#/$defs/c%20d/b/type/x"):
        assert schema_at(schema, nowhere) is None
    assert schema_at(schema, f"#/$defs/a~1b/anyOf/{'9' * 5000}") is None


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
