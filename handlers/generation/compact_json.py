"""Structural tags of JSON with one space between its parts.

xgrammar lets a model write any whitespace between the parts of a JSON schema, and small models may
write whitespace until their last token. So objects and arrays are written out as texts with the
schemas of their values between them. What cannot be written out remains a schema: recursive
references, free keys, and arrays of at most so many items that they cannot be listed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

from handlers.generation.structural_tag import (
    EMPTY,
    Format,
    any_of,
    literal,
    repeated,
    schema_of,
    sequence,
    tag,
)

Schema = Mapping[str, Any] | bool
DEFINITIONS = ("$defs", "definitions")
# A reference in JSON to another place than a definition.
ELSEWHERE = re.compile(r'"\$ref": "(?!#/(?:\$defs|definitions)/)')
# What describes a schema and changes no text.
NOTES = {"title", "description", "default", "examples", "$schema", "$id", "$comment", *DEFINITIONS}
OF_OBJECTS = {"type", "properties", "required", "additionalProperties"}
OF_ARRAYS = {"type", "items", "minItems", "maxItems"}
OF_CHOICES = {"anyOf"}
# The parts of a schema that are schemas: by names, in lists, and alone.
BY_NAME = ("properties", "patternProperties", *DEFINITIONS)
LISTED = ("anyOf", "oneOf", "allOf", "prefixItems")
SINGLE = ("items", "additionalProperties", "propertyNames")
LENGTHS = {"minLength", "maxLength"}
# xgrammar reads these instead of lengths.
BESIDE_LENGTHS = {"pattern", "format", "enum", "const"}
# A character of a JSON string that needs no escape.
PLAIN_CHARACTER = r'[^"\\\x00-\x1f]'
MAX_ITEMS = 16
# Formats in one structural tag; the items of nested arrays multiply.
MAX_FORMATS = 2_000
# Characters of the schemas in it; what they refer to is in each of them again.
MAX_CHARACTERS = 100_000


def compact_json(schema: Schema) -> Format:
    """Return the format of the JSON that matches a schema."""
    schema = _with_lengths_as_patterns(schema)
    writer = _Writer(schema)
    try:
        return writer.write(schema, ())
    except _NotWrittenOut:
        return schema_of(schema)


class _NotWrittenOut(Exception):
    pass


class _Writer:
    """Writes a schema out, together with the definitions that it refers to.

    Args:
        root: the schema with the definitions.
    """

    def __init__(self, root: Schema) -> None:
        given = root if isinstance(root, Mapping) else {}
        self._definitions = {name: given[name] for name in DEFINITIONS if name in given}
        self._formats = self._characters = 0

    def write(self, schema: Schema, within: tuple[str, ...]) -> Format:
        """Return the format of a schema.

        Args:
            schema: the schema.
            within: the references that it is part of.

        Raises:
            _NotWrittenOut: there are too many formats, or too many characters in their schemas, or
                a reference to another place than a definition, which a part does not have.
        """
        self._formats += 1
        if self._formats > MAX_FORMATS:
            raise _NotWrittenOut
        if not isinstance(schema, Mapping):
            return self._leaf(schema)
        keywords = schema.keys() - NOTES
        if keywords == {"$ref"}:
            return self._reference(schema, within)
        if keywords == OF_CHOICES and isinstance(schema["anyOf"], list) and schema["anyOf"]:
            return any_of(*(self.write(each, within) for each in schema["anyOf"]))
        if schema.get("type") == "object" and keywords <= OF_OBJECTS:
            return self._object(schema, within)
        if schema.get("type") == "array" and keywords <= OF_ARRAYS:
            return self._array(schema, within)
        return self._leaf(schema)

    def _leaf(self, schema: Schema) -> Format:
        if isinstance(schema, Mapping) and '"$ref"' in (text := json.dumps(schema)):
            if ELSEWHERE.search(text):
                raise _NotWrittenOut
            schema = {**schema, **self._definitions}
        self._characters += len(json.dumps(schema))
        if self._characters > MAX_CHARACTERS:
            raise _NotWrittenOut
        return schema_of(schema)

    def _reference(self, schema: Mapping[str, Any], within: tuple[str, ...]) -> Format:
        place = schema["$ref"]
        parts = place.split("/") if isinstance(place, str) else []
        if len(parts) != 3 or parts[0] != "#" or place in within:
            return self._leaf(schema)
        target = self._definitions.get(parts[1], {})
        if not isinstance(target, Mapping) or parts[2] not in target:
            return self._leaf(schema)
        return self.write(target[parts[2]], (*within, place))

    def _object(self, schema: Mapping[str, Any], within: tuple[str, ...]) -> Format:
        properties, required = schema.get("properties"), schema.get("required", [])
        if not isinstance(properties, Mapping) or schema.get("additionalProperties"):
            return self._leaf(schema)
        first = next((name for name in properties if name in required), None)
        if first is None or not set(required) <= properties.keys():
            return self._leaf(schema)
        # The comma comes before each other property, so one that is always there is the first.
        parts = [literal("{"), *self._member(first, properties[first], within)]
        for name in (each for each in properties if each != first):
            member = literal(", "), *self._member(name, properties[name], within)
            parts += member if name in required else [any_of(sequence(*member), EMPTY)]
        return sequence(*parts, literal("}"))

    def _member(self, name: str, schema: Schema, within: tuple[str, ...]) -> tuple[Format, Format]:
        key = json.dumps(name, ensure_ascii=False)
        return literal(f"{key}: "), self.write(schema, within)

    def _array(self, schema: Mapping[str, Any], within: tuple[str, ...]) -> Format:
        least, most = schema.get("minItems", 0), schema.get("maxItems", inf)
        if not (_is_count(least) and (most == inf or _is_count(most)) and least <= most):
            return self._leaf(schema)
        if most == inf and least <= MAX_ITEMS:
            items = [self.write(schema.get("items", True), within) for _ in range(1 + least)]
            return tag("[", _items_without_end(items), "]")
        if most > MAX_ITEMS:
            return self._leaf(schema)
        items = [self.write(schema.get("items", True), within) for _ in range(most)]
        return sequence(literal("["), _items(items, least), literal("]"))


def _with_lengths_as_patterns(schema: Any) -> Any:
    """Return a schema with patterns in place of the lengths of strings.

    xgrammar would let a string of some length have control characters, which JSON escapes.
    """
    if not isinstance(schema, Mapping):
        return schema
    changed = {name: _changed_part(name, value) for name, value in schema.items()}
    pattern = _pattern_of_lengths(changed)
    if pattern is None:
        return changed
    return {name: changed[name] for name in changed if name not in LENGTHS} | {"pattern": pattern}


def _changed_part(name: str, value: Any) -> Any:
    if name in BY_NAME and isinstance(value, Mapping):
        return {key: _with_lengths_as_patterns(each) for key, each in value.items()}
    if name in LISTED and isinstance(value, list):
        return [_with_lengths_as_patterns(each) for each in value]
    return _with_lengths_as_patterns(value) if name in SINGLE else value


def _pattern_of_lengths(schema: Mapping[str, Any]) -> str | None:
    """Return the pattern of strings of the length of a schema; None where none is needed."""
    least, most = schema.get("minLength", 0), schema.get("maxLength", inf)
    is_bounded = schema.keys() & LENGTHS and not schema.keys() & BESIDE_LENGTHS
    if not is_bounded or not _is_count(least):
        return None
    if most == inf:
        return f"^{PLAIN_CHARACTER}{{{least},}}$"
    return f"^{PLAIN_CHARACTER}{{{least},{most}}}$" if _is_count(most) and least <= most else None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _items_without_end(items: Sequence[Format]) -> Format:
    """Return the format of all items but the last, and any number of that one."""
    *first, more = items
    if not first:
        return repeated(more, ", ")
    listed = [part for each in first for part in (literal(", "), each)][1:]
    return sequence(*listed, repeated(sequence(literal(", "), more), ""))


def _items(items: Sequence[Format], least: int) -> Format:
    """Return the format of so many items or more, with commas between them."""
    rest: Format = EMPTY
    for number in range(len(items), 0, -1):
        comma = [literal(", ")] if number > 1 else []
        following = [] if rest is EMPTY else [rest]
        here = sequence(*comma, items[number - 1], *following)
        rest = here if number <= least else any_of(here, EMPTY)
    return rest
