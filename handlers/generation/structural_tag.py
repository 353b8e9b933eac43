"""Structural tags: the grammars of xgrammar.

xgrammar lets a model write any whitespace between the parts of a JSON schema, and small models may
write whitespace until their last token. So objects and arrays are written out as texts with the
schemas of their values between them, and values of any type as rules. What cannot be written out
remains a schema: recursive references, and objects and arrays that may have many parts or none.

https://xgrammar.mlc.ai/docs/tutorials/structural_tag.html
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence, Set
from math import inf
from typing import Any, Literal

from .json_schemas import DEFINITIONS, RANGE, Schema, rewritten, schema_at

Format = Mapping[str, Any]
# xgrammar refuses an empty text and an empty pattern.
EMPTY: Format = {"type": "regex", "pattern": "()"}
# Rules of any JSON, with one space between its parts, in xgrammar's variant of EBNF.
JSON_RULES = r"""
value ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" (member (", " member)*)? "}"
member ::= string ": " value
array ::= "[" (value (", " value)*)? "]"
string ::= "\"" character* "\""
character ::= [^"\\\x00-\x1f] | "\\" escaped
escaped ::= ["\\/bfnrt] | "u" digit digit digit digit
digit ::= [0-9a-fA-F]
number ::= "-"? ("0" | [1-9] [0-9]*) ("." [0-9]+)? ([eE] [+-]? [0-9]+)?
"""
# A reference in JSON to anything but a definition.
ELSEWHERE = re.compile(r'"\$ref": "(?!#/(?:\$defs|definitions)/)')
# Keywords that change no text.
NOTES = {"title", "description", "default", "examples", "$schema", "$id", "$comment", *DEFINITIONS}
OF_OBJECTS = {"type", "properties", "required", "additionalProperties"}
OF_ARRAYS = {"type", "items", "minItems", "maxItems"}
OF_VALUES = {"minLength", "maxLength", "pattern", "format", *RANGE}
# xgrammar treats `oneOf` as `anyOf`.
CHOICES = ("anyOf", "oneOf")
# Without required properties each may be the first: the number of formats grows with the square.
MAX_OPTIONAL = 12
LENGTHS = {"minLength", "maxLength"}
# With one of these, xgrammar ignores lengths.
EXCLUDING_LENGTHS = {"pattern", "format", "enum", "const"}
# A character of a JSON string that needs no escape.
PLAIN_CHARACTER = r'[^"\\\x00-\x1f]'
MAX_ITEMS = 16
# The maximum number of formats in one structural tag; the items of nested arrays multiply.
MAX_FORMATS = 2_000
# The maximum number of characters of its schemas, each of which repeats its definitions.
MAX_CHARACTERS = 100_000


def any_json(kind: Literal["value", "object", "array", "string"]) -> Format:
    """Return the format of any JSON of a kind, with one space between its parts."""
    return {"type": "grammar", "grammar": f"root ::= {kind}{JSON_RULES}"}


def any_text() -> Format:
    """Return the format of any text, the content of a tag."""
    return {"type": "any_text"}


def matching(pattern: str) -> Format:
    """Return the format of the texts that match a regular expression."""
    return {"type": "regex", "pattern": pattern}


def schema_of(schema: Mapping[str, Any] | bool) -> Format:
    """Return the format of the JSON that matches a schema, with any whitespace in it."""
    return {"type": "json_schema", "json_schema": schema}


def literal(text: str) -> Format:
    """Return the format of one text, which is not empty."""
    return {"type": "const_string", "value": text}


def sequence(*parts: Format) -> Format:
    """Return the format of parts one after another."""
    return {"type": "sequence", "elements": list(parts)}


def any_of(*choices: Format) -> Format:
    """Return the format of a text in one of several formats."""
    return {"type": "or", "elements": list(choices)}


def tag(begin: str, content: Format, end: str) -> Format:
    """Return the format of a content between two texts."""
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def repeated(content: Format, separator: str) -> Format:
    """Return the format of any number of contents, the last part of a tag."""
    return {**tags([tag("", content, "")], separator), "at_least_one": False}


def tags(each: Sequence[Format], separator: str) -> Format:
    """Return the format of one or more of several tags."""
    return {
        "type": "tags_with_separator",
        "tags": list(each),
        "separator": separator,
        "at_least_one": True,
        "stop_after_first": False,
    }


def text_until(opening: str, last: Format) -> Format:
    """Return the format of a free text that may end with a tag, which begins with an opening."""
    return {
        "type": "triggered_tags",
        "triggers": [opening],
        "tags": [last],
        "at_least_one": False,
        "stop_after_first": True,
    }


def compact_json(schema: Schema) -> Format:
    """Return the format of the JSON that matches a schema."""
    schema = rewritten(schema, _length_as_pattern)
    writer = _Writer(schema)
    try:
        return writer.write(schema, ())
    except _NotWrittenOut:
        return schema_of(schema)


class _NotWrittenOut(Exception):
    pass


class _Writer:
    """Writes a schema out, with the definitions of its root."""

    def __init__(self, root: Schema) -> None:
        given = self._root = root if isinstance(root, Mapping) else {}
        self._definitions = {name: given[name] for name in DEFINITIONS if name in given}
        self._formats = self._characters = 0

    def write(self, schema: Schema, within: tuple[str, ...]) -> Format:
        """Return the format of a schema.

        Args:
            schema: the schema.
            within: the references that it is part of.

        Raises:
            _NotWrittenOut: there are too many formats or characters, or a recursive reference to
                anything but a definition.
        """
        self._formats += 1
        if self._formats > MAX_FORMATS:
            raise _NotWrittenOut
        if not isinstance(schema, Mapping):
            return any_json("value") if schema else self._leaf(schema)
        keywords, kind = schema.keys() - NOTES, _kind(schema)
        if keywords == {"$ref"}:
            return self._reference(schema, within)
        if choices := _choices(schema, keywords):
            return any_of(*(self.write(each, within) for each in choices))
        if keywords <= {"type"} and kind in ("value", "object", "array"):
            return any_json(kind)
        if kind == "object" and keywords <= OF_OBJECTS:
            return self._object(schema, within)
        if kind == "array" and keywords <= OF_ARRAYS:
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
        target = schema_at(self._root, place) if isinstance(place, str) else None
        if not isinstance(target, Mapping | bool) or place in within:
            return self._leaf(schema)
        return self.write(target, (*within, place))

    def _object(self, schema: Mapping[str, Any], within: tuple[str, ...]) -> Format:
        properties, required = schema.get("properties", {}), schema.get("required", [])
        if not isinstance(properties, Mapping) or not _are_among(required, properties):
            return self._leaf(schema)
        if not required and len(properties) > MAX_OPTIONAL:
            return self._leaf(schema)
        # The comma comes before each other property, so one that is always there is the first.
        firsts = [name for name in properties if name in required][:1] or list(properties)
        objects = [self._members(schema, first, within) for first in firsts]
        if not required:
            objects.append(self._braces([], schema, within))
        return objects[0] if len(objects) == 1 else any_of(*objects)

    def _members(self, schema: Mapping[str, Any], first: str, within: tuple[str, ...]) -> Format:
        """Return the format of an object that begins with a property."""
        properties, required = schema["properties"], schema.get("required", [])
        names = [name for name in properties if name != first]
        if not required:  # Those before it are not there.
            names = list(properties)[list(properties).index(first) + 1 :]
        parts = [*self._member(first, properties[first], within)]
        for name in names:
            member = literal(", "), *self._member(name, properties[name], within)
            parts += member if name in required else [any_of(sequence(*member), EMPTY)]
        return self._braces(parts, schema, within)

    def _braces(
        self, parts: Sequence[Format], schema: Mapping[str, Any], within: tuple[str, ...]
    ) -> Format:
        """Return the format of an object with some members, and free ones where it may have any."""
        additional = schema.get("additionalProperties", False)
        if additional is False:
            return sequence(literal("{"), *parts, literal("}"))
        free = any_json("string"), literal(": "), self.write(additional, within)
        if not parts:
            return tag("{", repeated(sequence(*free), ", "), "}")
        return tag("{", sequence(*parts, repeated(sequence(literal(", "), *free), "")), "}")

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


def _kind(schema: Mapping[str, Any]) -> Any:
    """Return the type of a schema; `value` for any type. A schema with properties is an object."""
    return schema.get("type", "object" if "properties" in schema else "value")


def _choices(schema: Mapping[str, Any], keywords: Set[str]) -> Sequence[Schema]:
    for name in CHOICES:
        if keywords == {name} and isinstance(schema[name], list):
            return schema[name]
    members, types = schema.get("allOf"), schema.get("type")
    if keywords == {"allOf"} and isinstance(members, list) and len(members) == 1:
        return members
    if isinstance(types, list) and {"object", "array"} & set(map(str, types)):
        return [_of_type(schema, each) for each in types]
    return []


def _of_type(schema: Mapping[str, Any], kind: Any) -> Schema:
    """Return a schema of several types for one type, without the keywords of the others."""
    own = {"object": OF_OBJECTS, "array": OF_ARRAYS}.get(str(kind), OF_VALUES)
    others = (OF_OBJECTS | OF_ARRAYS | OF_VALUES) - own
    return {name: value for name, value in schema.items() if name not in others} | {"type": kind}


def _are_among(required: Any, properties: Mapping[str, Any]) -> bool:
    return isinstance(required, list) and all(
        isinstance(name, str) and name in properties for name in required
    )


def _length_as_pattern(_: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a string with a pattern instead of lengths.

    With lengths, xgrammar allows control characters, which JSON must escape.
    """
    pattern = _pattern_of_lengths(schema)
    if pattern is None:
        return schema
    return {name: schema[name] for name in schema if name not in LENGTHS} | {"pattern": pattern}


def _pattern_of_lengths(schema: Mapping[str, Any]) -> str | None:
    least, most = schema.get("minLength", 0), schema.get("maxLength", inf)
    is_bounded = schema.keys() & LENGTHS and not schema.keys() & EXCLUDING_LENGTHS
    if not is_bounded or not _is_count(least):
        return None
    if most == inf:
        return f"^{PLAIN_CHARACTER}{{{least},}}$"
    return f"^{PLAIN_CHARACTER}{{{least},{most}}}$" if _is_count(most) and least <= most else None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _items_without_end(items: Sequence[Format]) -> Format:
    *first, more = items
    if not first:
        return repeated(more, ", ")
    listed = [part for each in first for part in (literal(", "), each)][1:]
    return sequence(*listed, repeated(sequence(literal(", "), more), ""))


def _items(items: Sequence[Format], least: int) -> Format:
    """Return the format of a minimum number of items or more, with commas between them."""
    rest: Format = EMPTY
    for number in range(len(items), 0, -1):
        comma = [literal(", ")] if number > 1 else []
        following = [] if rest is EMPTY else [rest]
        here = sequence(*comma, items[number - 1], *following)
        rest = here if number <= least else any_of(here, EMPTY)
    return rest
