"""Structural tags of JSON without free whitespace."""

from __future__ import annotations

from typing import Any

import pytest

from hf_serve.handlers.generation.structural_tag import (
    EMPTY,
    MAX_ITEMS,
    MAX_OPTIONAL,
    any_json,
    any_of,
    compact_json,
    literal,
    repeated,
    schema_of,
    sequence,
    tag,
)

NUMBER = {"type": "integer", "minimum": 0}
WORD = {"enum": ["fox", "bear"]}


def test_an_object_is_written_out_with_its_required_properties_first() -> None:
    schema = {
        "type": "object",
        "properties": {"age": NUMBER, "kind": WORD, "größe": NUMBER},
        "required": ["kind", "größe"],
        "title": "Animal",
    }
    optional = any_of(sequence(literal(", "), literal('"age": '), schema_of(NUMBER)), EMPTY)
    assert compact_json(schema) == sequence(
        *(literal("{"), literal('"kind": '), schema_of(WORD)),
        optional,
        *(literal(", "), literal('"größe": '), schema_of(NUMBER)),
        literal("}"),
    )


def test_a_short_array_has_its_items_one_after_another() -> None:
    second = any_of(sequence(literal(", "), schema_of(NUMBER)), EMPTY)
    items = sequence(schema_of(NUMBER), second)
    schema = {"type": "array", "items": NUMBER, "minItems": 1, "maxItems": 2}
    assert compact_json(schema) == sequence(literal("["), items, literal("]"))


def test_an_array_without_end_repeats_its_items() -> None:
    schema = {"type": "array", "items": NUMBER}
    assert compact_json(schema) == tag("[", repeated(schema_of(NUMBER), ", "), "]")
    more = repeated(sequence(literal(", "), schema_of(NUMBER)), "")
    items = sequence(schema_of(NUMBER), literal(", "), schema_of(NUMBER), more)
    assert compact_json({**schema, "minItems": 2}) == tag("[", items, "]")


@pytest.mark.parametrize("bound", ["minItems", "maxItems"])
def test_an_array_of_the_most_items_is_written_out(bound: str) -> None:
    schema = {"type": "array", "items": NUMBER, bound: MAX_ITEMS}
    assert compact_json(schema) != schema_of(schema)


def test_references_and_choices_are_followed() -> None:
    schema = {"anyOf": [{"$ref": "#/$defs/Word"}, {"type": "null"}], "$defs": {"Word": WORD}}
    assert compact_json(schema) == any_of(schema_of(WORD), schema_of({"type": "null"}))
    escaped = {"$ref": "#/$defs/List%5BWord%5D", "$defs": {"List[Word]": WORD}}
    assert compact_json(escaped) == schema_of(WORD)


def test_any_json_has_one_space_between_its_parts() -> None:
    for schema, kind in (
        (True, "value"),
        ({"title": "Anything"}, "value"),
        ({"type": "object"}, "object"),
        ({"type": "array"}, "array"),
    ):
        assert compact_json(schema) == any_json(kind)  # type: ignore[arg-type]


def test_free_keys_follow_the_properties() -> None:
    free = any_json("string"), literal(": "), schema_of(NUMBER)
    alone = {"type": "object", "additionalProperties": NUMBER}
    assert compact_json(alone) == tag("{", repeated(sequence(*free), ", "), "}")
    beside = {**alone, "properties": {"a": WORD}, "required": ["a"]}
    more = repeated(sequence(literal(", "), *free), "")
    assert compact_json(beside) == tag("{", sequence(literal('"a": '), schema_of(WORD), more), "}")


def test_an_object_may_begin_with_any_property_where_none_is_required() -> None:
    first = literal('"a": '), schema_of(NUMBER)
    second = literal('"b": '), schema_of(WORD)
    both = *first, any_of(sequence(literal(", "), *second), EMPTY)
    schema = {"properties": {"a": NUMBER, "b": WORD}}
    assert compact_json(schema) == any_of(
        *(sequence(literal("{"), *parts, literal("}")) for parts in (both, second, ()))
    )
    assert compact_json({"type": "object", "properties": {}, "additionalProperties": False}) == (
        sequence(literal("{"), literal("}"))
    )


def test_each_of_several_types_is_written_out() -> None:
    schema = {"type": ["array", "null", "integer"], "items": WORD, "minimum": 0}
    assert compact_json(schema) == any_of(
        tag("[", repeated(schema_of(WORD), ", "), "]"),
        schema_of({"type": "null", "minimum": 0}),
        schema_of(NUMBER),
    )


TREE = {
    "type": "object",
    "properties": {"name": WORD, "next": {"$ref": "#/$defs/Tree"}},
    "required": ["name"],
}


@pytest.mark.parametrize(
    "schema",
    [
        False,
        {"type": "object", "properties": {f"p{each}": NUMBER for each in range(MAX_OPTIONAL + 1)}},
        {"type": "object", "properties": {"a": NUMBER}, "minProperties": 1},
        {"type": "object", "properties": {"a": NUMBER}, "required": [["a"]]},
        {"type": "object", "properties": {"a": NUMBER}, "required": ["b"]},
        {"type": "array", "items": NUMBER, "minItems": MAX_ITEMS + 1},
        {"type": "array", "items": NUMBER, "maxItems": MAX_ITEMS + 1},
        {"type": "array", "items": NUMBER, "minItems": 2, "maxItems": 1},
        {"type": "array", "items": NUMBER, "minItems": "2"},
        {"type": "array", "prefixItems": [NUMBER], "maxItems": 2},
        {"$ref": "#/elsewhere"},
    ],
)
def test_what_cannot_be_written_out_remains_a_schema(schema: Any) -> None:
    assert compact_json(schema) == schema_of(schema)


def test_a_recursive_reference_remains_a_schema_with_its_definitions() -> None:
    root = {"$ref": "#/$defs/Tree", "$defs": {"Tree": TREE}}
    inner = {"$ref": "#/$defs/Tree", "$defs": {"Tree": TREE}}
    following = sequence(literal(", "), literal('"next": '), schema_of(inner))
    assert compact_json(root) == sequence(
        *(literal("{"), literal('"name": '), schema_of(WORD)),
        any_of(following, EMPTY),
        literal("}"),
    )


def test_a_schema_that_multiplies_remains_one() -> None:
    schema: dict[str, Any] = NUMBER
    for _ in range(6):
        schema = {"type": "array", "items": schema, "maxItems": MAX_ITEMS}
    assert compact_json(schema) == schema_of(schema)


def test_a_schema_that_repeats_its_definitions_remains_one() -> None:
    words = {"type": "array", "items": {"$ref": "#/$defs/Word"}}
    schema = {
        "type": "object",
        "properties": {f"p{number}": words for number in range(300)},
        "required": ["p0"],
        "$defs": {"Word": {"enum": ["fox" * 1_000]}},
    }
    assert compact_json(schema) == schema_of(schema)


def test_a_recursive_reference_to_another_place_than_a_definition_remains_a_schema() -> None:
    properties = {"word": WORD, "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}
    schema = {"type": "object", "properties": properties, "required": ["word", "next"]}
    assert compact_json(schema) == schema_of(schema)


def test_a_reference_to_another_property_is_followed() -> None:
    place = {"type": "object", "properties": {"at": WORD}, "required": ["at"]}
    schema = {
        "type": "object",
        "properties": {"from": place, "to": {"$ref": "#/properties/from"}},
        "required": ["from", "to"],
    }
    properties = {"from": place, "to": place}
    assert compact_json(schema) == compact_json({**schema, "properties": properties})
