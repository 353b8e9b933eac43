"""JSON schemas of the types of requests and results."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from handlers.schemas.model_info import Schema
from handlers.schemas.parameters import Parameters


class PlainSchema(GenerateJsonSchema):
    """JSON schemas without titles that repeat a field's name."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def json_schema(kind: Any) -> dict[str, Any]:
    """Return the JSON schema of a type."""
    return TypeAdapter(kind).json_schema(schema_generator=PlainSchema)


def parameter_schemas(kind: type[Parameters], defaults: Schema) -> dict[str, Any]:
    """Return the JSON schema of each parameter by name, with the given defaults.

    Descriptions are left out: they belong to the documentation, and are long for an answer.
    """
    found = kind.model_json_schema(by_alias=False, schema_generator=PlainSchema)["properties"]
    for name, schema in found.items():
        schema.pop("description", None)
        if name in defaults:
            schema["default"] = defaults[name]
    return dict(found)
