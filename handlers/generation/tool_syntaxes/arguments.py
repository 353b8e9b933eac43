"""The arguments of tools: their schemas, and what these say about the names of arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from math import prod
from typing import Any, cast

from ...types.structured_output import MAX_SCHEMA_DEPTH, Tool
from ..json_schemas import DEFINITIONS, Schema, closed, references_in, rewritten, schema_at

# In OpenAI's API, a function without parameters has no arguments.
NO_ARGUMENTS = {"properties": {}, "additionalProperties": False}
# Where the schema of a property has the schema of all arguments.
ROOT_PLACE = ("$defs", "whole_arguments")
# The maximum number of shapes of the arguments of a tool; more become one that has them all.
MAX_SHAPES = 16
ALTERNATIVES = ("anyOf", "oneOf")


def arguments_schema(tool: Tool) -> dict[str, Any]:
    """Return the JSON schema of the arguments of a tool, whose objects are closed."""
    schema: dict[str, Any] = closed(
        {**(tool.function.parameters or NO_ARGUMENTS), "type": "object"}
    )
    return schema


@dataclass(frozen=True)
class ArgumentsShape:
    """Arguments that a call may have.

    Attributes:
        properties: the schemas of the declared ones by name, each with what it refers to.
        required: the names of the ones that are always there.
        others: the schema of undeclared ones; False where there are none.
    """

    properties: Mapping[str, Schema]
    required: frozenset[str]
    others: Schema

    @property
    def pairs(self) -> list[tuple[str, Schema, bool]]:
        """The declared arguments: names, schemas, and whether each is always there."""
        return [(name, own, name in self.required) for name, own in self.properties.items()]


def shapes_of(schema: Schema) -> list[ArgumentsShape]:
    """Return the alternatives of the arguments of an object, with references and `allOf` joined."""
    return [each.shape(schema) for each in _Reader(schema).read(schema)]


def schemas_by_name(schema: Schema) -> tuple[Mapping[str, Schema], Schema]:
    """Return the schemas of the declared arguments in any shape, and of undeclared ones."""
    shape = _alternative(_Reader(schema).read(schema)).shape(schema)
    return shape.properties, shape.others


@dataclass(frozen=True)
class _Parts:
    """The keywords of an object that describe its keys, from several schemas of the same object."""

    properties: Mapping[str, Sequence[Schema]]
    required: frozenset[str]
    # The values of `additionalProperties`, and the schemas of `patternProperties`.
    additional: Sequence[Schema] = ()
    patterns: Sequence[Schema] = ()

    def __add__(self, more: _Parts) -> _Parts:
        names = {**self.properties, **more.properties}
        return _Parts(
            {
                name: _different(self.properties.get(name, ()), more.properties.get(name, ()))
                for name in names
            },
            self.required | more.required,
            _different(self.additional, more.additional),
            _different(self.patterns, more.patterns),
        )

    def shape(self, root: Schema) -> ArgumentsShape:
        """Return the arguments that are described."""
        properties = {
            name: with_definitions(joined(each, "allOf"), root)
            for name, each in self.properties.items()
        }
        required = frozenset(name for name in self.required if name in properties)
        return ArgumentsShape(properties, required, with_definitions(self._others, root))

    @property
    def _others(self) -> Schema:
        if not self.additional and not self.patterns:
            return not self.properties
        given = [each for each in self.additional if each is not False]
        if len(given) < len(self.additional):
            return joined(self.patterns, "anyOf") if self.patterns else False
        return True if self.patterns or True in given else joined(given, "allOf")


NO_PARTS = _Parts({}, frozenset())


class _Reader:
    """Reads what the schemas of an object say about its keys, each schema once."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._known: dict[int, list[_Parts]] = {}

    def read(self, schema: Any, depth: int = MAX_SCHEMA_DEPTH) -> list[_Parts]:
        """Return the alternatives of a schema."""
        if not isinstance(schema, Mapping) or not depth:
            return [NO_PARTS]
        if id(schema) not in self._known:
            self._known[id(schema)] = [NO_PARTS]  # For a reference to itself.
            self._known[id(schema)] = self._combined(schema, depth - 1)
        return self._known[id(schema)]

    def _combined(self, schema: Mapping[str, Any], depth: int) -> list[_Parts]:
        together = [self.read(each, depth) for each in listed(schema.get("allOf"))]
        if isinstance(schema.get("$ref"), str):
            together.append(self.read(schema_at(self._root, schema["$ref"]), depth))
        lists = filter(None, (listed(schema.get(keyword)) for keyword in ALTERNATIVES))
        together += [[part for each in some for part in self.read(each, depth)] for some in lists]
        if prod(map(len, together)) > MAX_SHAPES:
            together = [[_alternative(each)] for each in together]
        return [reduce(_Parts.__add__, each, _own_parts(schema)) for each in product(*together)]


def _own_parts(schema: Mapping[str, Any]) -> _Parts:
    properties, patterns = schema.get("properties"), schema.get("patternProperties")
    return _Parts(
        {name: [each] for name, each in properties.items()}
        if isinstance(properties, Mapping)
        else {},
        frozenset(each for each in listed(schema.get("required")) if isinstance(each, str)),
        [schema["additionalProperties"]] if "additionalProperties" in schema else (),
        list(patterns.values()) if isinstance(patterns, Mapping) else (),
    )


def _alternative(parts: Sequence[_Parts]) -> _Parts:
    """Return one description of keys that has all alternatives."""
    if len(parts) == 1:
        return parts[0]
    names = dict.fromkeys(name for each in parts for name in each.properties)
    schemas = {
        name: [joined(each.properties[name], "allOf") for each in parts if name in each.properties]
        for name in names
    }
    additional = _different(*(part.additional for part in parts))
    opened = [each for each in additional if each is not False]
    return _Parts(
        {name: [joined(each, "anyOf")] for name, each in schemas.items()},
        frozenset.intersection(*(each.required for each in parts)),
        [joined(opened, "anyOf")] if opened else additional[:1],
        _different(*(part.patterns for part in parts)),
    )


def listed(members: Any) -> Sequence[Any]:
    """Return the members of a list; none of another value."""
    return members if isinstance(members, list) else ()


def joined(schemas: Sequence[Schema], keyword: str) -> Schema:
    """Return one schema of several for the same value."""
    different = _different(schemas)
    return different[0] if len(different) == 1 else {keyword: different}


def _different(*schemas: Sequence[Schema]) -> list[Schema]:
    """Return the schemas of several lists, each once."""
    found = [each for part in schemas for each in part]
    return [each for at, each in enumerate(found) if each not in found[:at]]


def with_definitions(own: Schema, root: Schema) -> Schema:
    """Return a schema with what it refers to; a reference becomes the schema that it names."""
    if not isinstance(root, Mapping):
        return own
    for _ in range(MAX_SCHEMA_DEPTH):
        if not (isinstance(own, Mapping) and isinstance(own.get("$ref"), str)):
            break
        found = schema_at(root, own["$ref"])
        if not isinstance(found, Mapping):
            break
        own = found
    if not isinstance(own, Mapping):
        return own
    definitions = {name: root[name] for name in DEFINITIONS if name in root}
    if not any(map(_is_outside, references_in({**own, **definitions}))):
        return {**own, **definitions}
    # What is not among the definitions is found in a copy of the whole schema.
    known = root.get(ROOT_PLACE[0])
    root_copy = {**(known if isinstance(known, Mapping) else {}), ROOT_PLACE[1]: root}
    moved = rewritten({**own, **definitions, ROOT_PLACE[0]: root_copy}, _with_moved_reference)
    return cast("Schema", moved)


def _is_outside(reference: str) -> bool:
    """Return whether a reference is to a part of the same schema, but to no definition."""
    return reference.startswith("#") and not reference.startswith(
        tuple(f"#/{name}/" for name in DEFINITIONS)
    )


def _with_moved_reference(_: str, schema: dict[str, Any]) -> dict[str, Any]:
    reference = schema.get("$ref")
    if not isinstance(reference, str) or not _is_outside(reference):
        return schema
    return {**schema, "$ref": f"#/{'/'.join(ROOT_PLACE)}{reference[1:]}"}
