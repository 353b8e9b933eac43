"""The arguments of tools: their schemas, and the grammar of a list of which some are left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from ...types.structured_output import MAX_SCHEMA_DEPTH, Tool
from ..json_schemas import DEFINITIONS, Schema, closed, references_in, rewritten, schema_at
from ..structural_tag import EMPTY, Format, any_of, literal, sequence

# In OpenAI's API, a function without parameters has no arguments.
NO_ARGUMENTS = {"properties": {}, "additionalProperties": False}
# Where the schema of a property has the schema of all arguments.
ROOT_PLACE = ("$defs", "whole_arguments")


def arguments_schema(tool: Tool) -> dict[str, Any]:
    """Return the JSON schema of the arguments of a tool, whose objects are closed."""
    schema: dict[str, Any] = closed(
        {**(tool.function.parameters or NO_ARGUMENTS), "type": "object"}
    )
    return schema


def properties_of(schema: Schema) -> Mapping[str, Schema]:
    """Return the schemas of the properties of an object, each with what it refers to."""
    if not isinstance(schema, Mapping) or not isinstance(schema.get("properties", {}), Mapping):
        return {}
    return {
        key: _with_definitions(own, schema) for key, own in schema.get("properties", {}).items()
    }


def _with_definitions(own: Schema, root: Mapping[str, Any]) -> Schema:
    """Return a schema with what it refers to; a reference becomes the schema that it names."""
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


def types_of(schema: Any) -> Sequence[Any]:
    """Return the types of a schema, or the types of its alternatives."""
    if not isinstance(schema, Mapping):
        return ()
    alternatives = schema.get("anyOf", schema.get("oneOf"))
    if isinstance(alternatives, list):
        return [kind for each in alternatives for kind in types_of(each)]
    kind = schema.get("type")
    return kind if isinstance(kind, list) else [kind]


def is_text(schema: Any) -> bool:
    """Return whether values of a schema are texts, which have no quotes."""
    return "string" in types_of(schema) or bool(choices_of(schema))


def choices_of(schema: Any) -> Sequence[str]:
    """Return the texts that a schema names; none for other schemas."""
    if not isinstance(schema, Mapping):
        return ()
    given = [schema["const"]] if "const" in schema else schema.get("enum", ())
    texts = [each for each in given if isinstance(each, str)] if isinstance(given, list) else []
    return texts if texts and len(texts) == len(given) else ()


def lark_list(pairs: Sequence[tuple[str, bool]], comma: str) -> str:
    """Return the Lark expression of rules one after another, of which some may be left out."""
    if not comma:
        return " ".join(name if required else f"{name}?" for name, required in pairs) or '""'
    first = next((at for at, (_, required) in enumerate(pairs) if required), None)
    if first is None:
        starts = range(len(pairs))
        lists = (" ".join([pairs[at][0], *_following(pairs[at + 1 :], comma)]) for at in starts)
        return " | ".join([*lists, '""'])
    before = (f"({name} {comma})?" for name, _ in pairs[:first])
    return " ".join([*before, pairs[first][0], *_following(pairs[first + 1 :], comma)])


def _following(pairs: Sequence[tuple[str, bool]], comma: str) -> list[str]:
    return [f"({comma} {name}){'' if required else '?'}" for name, required in pairs]


def list_format(pairs: Mapping[str, Format], required: Sequence[str], comma: str) -> Format:
    """Return the format of pairs one after another, of which some may be left out."""
    names = list(pairs)
    if not comma:
        parts = [pairs[name] if name in required else any_of(pairs[name], EMPTY) for name in names]
        return sequence(*parts) if parts else EMPTY
    first = next((at for at, name in enumerate(names) if name in required), None)
    if first is None:
        lists = [_list_from(pairs, names[at:], (), comma) for at in range(len(names))]
        return any_of(*lists, EMPTY)
    before = [any_of(sequence(pairs[name], literal(comma)), EMPTY) for name in names[:first]]
    return sequence(*before, _list_from(pairs, names[first:], required, comma))


def _list_from(
    pairs: Mapping[str, Format], names: Sequence[str], required: Sequence[str], comma: str
) -> Format:
    """Return the format of pairs of which the first is always there."""
    following = [(name, sequence(literal(comma), pairs[name])) for name in names[1:]]
    rest = [each if name in required else any_of(each, EMPTY) for name, each in following]
    return sequence(pairs[names[0]], *rest)
