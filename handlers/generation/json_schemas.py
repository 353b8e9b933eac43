"""JSON schemas as they are compiled: closed objects, without unsupported constraints."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote

Schema = Mapping[str, Any] | bool
DEFINITIONS = ("$defs", "definitions")
# The keywords whose values are schemas: by name, in a list, or a single one.
BY_NAME = ("properties", "patternProperties", *DEFINITIONS)
LISTED = ("anyOf", "oneOf", "allOf", "prefixItems")
SINGLE = ("items", "additionalProperties", "propertyNames")
# The schemas of these keywords describe the same object as the schema that contains them.
COMBINING = ("anyOf", "oneOf", "allOf")
# Keywords whose value is never null.
NEVER_NULL = ("properties", "required", "items", "additionalProperties", "enum", *DEFINITIONS)
# Other keywords that may describe the properties of the same object.
DESCRIBING = {"$ref", "if", "then", "else", "dependentSchemas", *COMBINING}
# With one of these, an object may have other keys than its properties.
OPENING = {"additionalProperties", "patternProperties", "unevaluatedProperties"}
# The types of integers.
INTEGER_TYPES = ("integer", ["integer"], ["integer", "null"], ["null", "integer"])
RANGE = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
# The characters of a reference that are not escaped, or are an escape.
IN_REFERENCES = "#/%:?&=@!$'()*+,;~"
# What no value matches.
NOTHING: Sequence[Any] = (False, {"not": {}})
# A small model may write whitespace without end. A space, or a line break with its indentation, is
# what models write between the parts of JSON.
WHITESPACE = r" |\n {0,16}|\n\t{0,4}"


def schemas_in(schema: Any, place: str = "#") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a schema and the schemas in it that have keywords, each with its JSON pointer."""
    waiting = [(place, schema)]
    while waiting:
        at, each = waiting.pop()
        if isinstance(each, dict):
            yield at, each
            waiting.extend(_parts(each, at))


def _parts(schema: Mapping[str, Any], place: str) -> Iterator[tuple[str, Any]]:
    for keyword in (*BY_NAME, *LISTED):
        for name, part in _items(schema.get(keyword)):
            yield f"{place}/{keyword}/{_escaped(name)}", part
    for keyword in SINGLE:
        yield f"{place}/{keyword}", schema.get(keyword)


def _items(parts: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(parts, Mapping):
        yield from parts.items()
    elif isinstance(parts, list):
        yield from ((str(number), each) for number, each in enumerate(parts))


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def references_in(schema: Any) -> Iterator[str]:
    """Yield the references in a schema."""
    for _, each in schemas_in(schema):
        if isinstance(each.get("$ref"), str):
            yield each["$ref"]


def schema_at(schema: Any, reference: str) -> Any:
    """Return the part of a schema that a reference names; None where there is none."""
    path, *names = unquote(reference).split("/")
    found = schema if path == "#" else None
    for name in names:
        key = name.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list):
            found = {str(at): each for at, each in enumerate(found)}
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def rewritten(schema: Any, change: Callable[[str, dict[str, Any]], Any], place: str = "#") -> Any:
    """Return a schema in which a function has changed each schema, the inner ones first.

    The function gets the JSON pointer of a schema, and the schema.
    """
    if not isinstance(schema, Mapping):
        return schema
    parts = {keyword: _rewritten_part(schema, keyword, change, place) for keyword in schema}
    return change(place, parts)


def _rewritten_part(
    schema: Mapping[str, Any],
    keyword: str,
    change: Callable[[str, dict[str, Any]], Any],
    place: str,
) -> Any:
    value, here = schema[keyword], f"{place}/{keyword}"
    if keyword in BY_NAME and isinstance(value, Mapping):
        return {
            name: rewritten(each, change, f"{here}/{_escaped(name)}")
            for name, each in value.items()
        }
    if keyword in LISTED and isinstance(value, list):
        return [rewritten(each, change, f"{here}/{at}") for at, each in enumerate(value)]
    return rewritten(value, change, here) if keyword in SINGLE else value


def closed(schema: Any) -> Any:
    """Return a schema whose objects have no other keys than their properties, as with OpenAI.

    An object stays open with `additionalProperties: true`, without properties, and if several
    schemas describe its properties.
    """
    shared = _shared_places(schema)

    def close(place: str, each: dict[str, Any]) -> dict[str, Any]:
        each = _without_nulls(each)
        if place not in shared:
            each = _with_plain_closing(each)
        properties, required = each.get("properties"), each.get("required", [])
        if place in shared or each.keys() & OPENING or not isinstance(properties, Mapping):
            return each
        named = required if isinstance(required, list) else [None]
        if not all(isinstance(name, str) and name in properties for name in named):
            return each
        return {**each, "additionalProperties": False}

    return rewritten(schema, close)


def _without_nulls(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without keywords that are null, which some clients write for none."""
    nulls = [key for key in NEVER_NULL if key in schema and schema[key] is None]
    return {key: schema[key] for key in schema if key not in nulls} if nulls else schema


def _with_plain_closing(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with `additionalProperties` for `unevaluatedProperties`.

    They say the same where no other keyword describes properties.
    """
    if schema.get("unevaluatedProperties") not in NOTHING or schema.keys() & DESCRIBING:
        return schema
    kept = {key: schema[key] for key in schema if key != "unevaluatedProperties"}
    return {"additionalProperties": False, **kept}


def _shared_places(schema: Any) -> set[str]:
    """Return the JSON pointers of the schemas that describe an object together with others."""
    schemas = dict(schemas_in(schema))
    waiting = [place for place, each in schemas.items() if _combines(each)]
    shared: set[str] = set()
    while waiting:
        place = waiting.pop()
        if place in shared or place not in schemas:
            continue
        shared.add(place)
        each = schemas[place]
        for keyword in COMBINING:
            waiting += [f"{place}/{keyword}/{at}" for at, _ in _items(each.get(keyword))]
        if isinstance(each.get("$ref"), str):
            waiting.append(unquote(each["$ref"]))
    return shared


def _combines(schema: Mapping[str, Any]) -> bool:
    single = [name for name in ("$ref", "anyOf", "oneOf") if name in schema]
    members = schema.get("allOf")
    count = len(members) if isinstance(members, list) else 0
    return len(single) + count + ("properties" in schema) > 1


def constraints_of(schema: Mapping[str, Any]) -> list[tuple[str, Schema]]:
    """Return the constraints that a compiler may not support: keys, and schemas with only one."""
    found: list[tuple[str, Schema]] = [
        (key, {"type": "string", key: schema[key]})
        for key in ("pattern", "format")
        if key in schema
    ]
    if isinstance(schema.get("patternProperties"), Mapping):
        patterns = dict.fromkeys(schema["patternProperties"], True)
        found.append(("patternProperties", {"type": "object", "patternProperties": patterns}))
    for key in RANGE:
        if key in schema:
            kind = "integer" if schema.get("type") in INTEGER_TYPES else "number"
            found.append((key, {"type": kind, key: schema[key]}))
    return found


def relaxed(schema: Schema, is_unsupported: Callable[[Schema], bool]) -> Any:
    """Return a schema without the constraints that a compiler does not support.

    Args:
        schema: the schema.
        is_unsupported: takes a schema with one constraint.
    """

    def relax(_: str, each: dict[str, Any]) -> Any:
        removed = {key for key, only in constraints_of(each) if is_unsupported(only)}
        if _is_elsewhere(each.get("$ref")):
            removed.add("$ref")
        # The name of a dialect changes nothing that is compiled.
        kept = {key: value for key, value in each.items() if key not in removed | {"$schema"}}
        return {**kept, "additionalProperties": True} if "patternProperties" in removed else kept

    return rewritten(schema, relax)


def _is_elsewhere(reference: Any) -> bool:
    return isinstance(reference, str) and not reference.startswith("#")


def constraints_in(schemas: Sequence[Schema]) -> list[Schema]:
    """Return each constraint that a compiler may not support, as a schema with only it."""
    found = (
        only
        for schema in schemas
        for _, each in schemas_in(schema)
        for _, only in constraints_of(each)
    )
    return list({json.dumps(each): each for each in found}.values())


def json_rule(schema: Schema, *, strict: bool) -> str:
    """Return the Lark expression of the JSON that matches a schema.

    If it is strict, an unsupported keyword is an error; otherwise it is ignored.
    """
    options = {"whitespace_pattern": WHITESPACE, "lenient": not strict}
    if any(_escaped_reference(each) != each for each in references_in(schema)):
        schema = rewritten(schema, _with_escaped_reference)
    rules = dict(schema) if isinstance(schema, Mapping) else {"allOf": [schema]}
    return f"%json {json.dumps({**rules, 'x-guidance': options})}"


def _with_escaped_reference(_: str, schema: dict[str, Any]) -> dict[str, Any]:
    reference = schema.get("$ref")
    if not isinstance(reference, str):
        return schema
    return {**schema, "$ref": _escaped_reference(reference)}


def _escaped_reference(reference: str) -> str:
    """Return a reference as a URI, where a name may have brackets or other letters than ASCII."""
    return quote(reference, safe=IN_REFERENCES)
