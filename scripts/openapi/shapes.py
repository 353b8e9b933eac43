"""JSON schemas that are written by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from jsonschema import Draft202012Validator

Schema = dict[str, Any]
PLACE = "#/components/schemas/"
TEXT: Schema = {"type": "string"}
NULL: Schema = {"type": "null"}
# Keys of a schema that do not change with an alternative.
ANNOTATIONS = ("title", "description", "default")


def ref(name: str) -> Schema:
    """Return a reference to one of the components."""
    return {"$ref": PLACE + name}


def any_of(*alternatives: Schema) -> Schema:
    """Return the schema of values that fit at least one of several."""
    return {"anyOf": list(alternatives)}


def one_of(alternatives: Iterable[Schema]) -> Schema:
    """Return the schema of values that fit one of several schemas, of which some may be equal."""
    found: list[Schema] = []
    for schema in alternatives:
        found += [] if schema in found else [schema]
    return any_of(*found) if len(found) > 1 else found[0]


def or_null(schema: Schema) -> Schema:
    """Return a schema that also allows null, which means that the value is left out."""
    if Draft202012Validator(schema).is_valid(None):
        return schema
    annotations = {name: schema[name] for name in ANNOTATIONS if name in schema}
    rest = {name: value for name, value in schema.items() if name not in ANNOTATIONS}
    return {**any_of(rest, NULL), **annotations}


def list_of(item: Schema, **more: Any) -> Schema:
    """Return the schema of a list."""
    return {"type": "array", "items": item, **more}


def closed(properties: Mapping[str, Schema], *required: str, description: str = "") -> Schema:
    """Return the schema of an object that has no other keys."""
    return {
        **({"description": description} if description else {}),
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


def alternatives(schema: Schema) -> Iterable[Schema]:
    """Return the schemas of which one must fit: the schema's own, or itself."""
    found: Iterable[Schema] = schema.get("anyOf", [schema])
    return found
