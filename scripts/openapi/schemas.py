"""The JSON schemas of a document: of types, of bodies, and what they are made of."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from jsonschema import Draft202012Validator
from pydantic import TypeAdapter
from typing_extensions import TypedDict

from hf_serve.handlers import tasks
from hf_serve.handlers.errors import ErrorBody, WholeErrorBody
from hf_serve.handlers.explainers import targets
from hf_serve.handlers.protocols.base import Route
from hf_serve.handlers.protocols.hugging_face import StepEvent, TokenEvent
from hf_serve.handlers.protocols.kserve_v1 import KServeError
from hf_serve.handlers.protocols.open_inference import InferenceResponse
from hf_serve.handlers.protocols.open_inference.tensors import InferenceRequest
from hf_serve.handlers.protocols.openai.types import ChatMessage
from hf_serve.handlers.types.model_info import Columns
from hf_serve.handlers.types.parameters import PlainSchema, parameter_schemas


class Health(TypedDict):
    """Whether every model has a worker that answers."""

    status: Literal["Healthy", "Partial Healthy", "Unhealthy"]


COMMON = (ErrorBody, WholeErrorBody, KServeError, Health, InferenceRequest, InferenceResponse)
# Bodies with the parameters of a mode.
WITH_PARAMETERS = ("GenerateBody", "SimilarityBody")


@dataclass(frozen=True)
class Schemas:
    """The schemas of a document.

    Attributes:
        by_type: the schema of each type, which may refer to components.
    """

    components: Mapping[str, Schema]
    by_type: Mapping[Any, Schema]


def schemas(mode: str, routes: Iterable[Route]) -> Schemas:
    """Return the schemas of a mode's document, whose models have some routes."""
    task, target = tasks.get(mode), targets.get(mode)
    kinds: list[Any] = [*COMMON, task.parameters]
    kinds += [TokenEvent] if task.description.generation.texts else []
    kinds += [StepEvent] if task.description.generation.images else []
    kinds += [target.results] if target else []
    for route in routes:
        kinds += [route.body, route.response, route.error, route.part]
    if any(route.name == "chat" for route in routes):
        kinds.append(ChatMessage)
    named = {"Inputs": task.description.wire.inputs, "Result": task.description.wire.results}
    components, by_type = _schemas_of(named, [kind for kind in kinds if kind is not None])
    _refine(components, task.parameters.__name__)
    return Schemas(components | bodies(mode, components), by_type)


def _refine(components: Mapping[str, Schema], parameters: str) -> None:
    """Describe what depends on the mode, or is checked after the body."""
    properties = components[parameters]["properties"]
    components[parameters]["properties"] = {
        name: or_null(schema) for name, schema in properties.items()
    }
    for name in components.keys() & set(WITH_PARAMETERS):
        components[name]["properties"]["parameters"] = any_of(ref(parameters), NULL)
    if "ChatBody" in components:
        components["ChatBody"]["properties"]["messages"]["items"] = ref("ChatMessage")


def _schemas_of(
    named: Mapping[str, Any], kinds: Iterable[Any]
) -> tuple[dict[str, Schema], dict[Any, Schema]]:
    """Return the components of types by their names, or names given here, and their schemas."""
    adapters: list[Any] = [
        (kind, "validation", TypeAdapter(kind)) for kind in dict.fromkeys([*named.values(), *kinds])
    ]
    by_key, rest = TypeAdapter.json_schemas(
        adapters,
        by_alias=False,
        ref_template=COMPONENTS + "{model}",
        schema_generator=PlainSchema,
    )
    by_type = {kind: schema for (kind, _), schema in by_key.items()}
    own = {name: by_type[kind] for name, kind in named.items() if by_type[kind] != ref(name)}
    # Types whose schema stands in the schema of a parameter are not referred to.
    inner = rest.get("$defs", {})
    text = json.dumps([*inner.values(), *by_key.values()])
    used = {name: schema for name, schema in inner.items() if f'"{COMPONENTS}{name}"' in text}
    return {**used, **own}, by_type


Schema = dict[str, Any]
COMPONENTS = "#/components/schemas/"
TEXT: Schema = {"type": "string"}
NULL: Schema = {"type": "null"}
# Keys of a schema that do not change with an alternative.
ANNOTATIONS = ("title", "description", "default")


def ref(name: str) -> Schema:
    """Return a reference to one of the components."""
    return {"$ref": COMPONENTS + name}


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


OPTIONS = {"type": "object", "description": "For Hugging Face's hub; not read here."}
TARGET = {"description": "What is explained, by `/explanations` only."}
STREAM: dict[str, Schema] = {"stream": {"type": ["boolean", "null"], "default": False}}
INPUTS = ref("Inputs")
OLD = "A body of TorchServe's own Hugging Face example."


def bodies(mode: str, known: Mapping[str, Schema]) -> dict[str, Schema]:
    """Return the bodies of a mode by name."""
    task = tasks.get(mode)
    old = _object_of_inputs(known, task.description.wire.input_columns)
    parameters = task.parameters.__name__
    found = {
        "PredictionBody": _body(
            parameters, old, STREAM if task.description.generation.texts else {}
        ),
        "PredictionInstances": _instances(parameters, old),
    }
    if target := targets.get(mode):
        explained = "ExplanationParameters"
        found |= {
            explained: _explanation_parameters(mode, target),
            "ExplanationBody": _body(explained, old),
            "ExplanationInstances": _instances(explained, old),
        }
    return found


def takes_text(known: Mapping[str, Schema]) -> bool:
    """Return whether a mode's inputs can be a text alone."""
    return TEXT in alternatives(known["Inputs"])


def _body(parameters: str, old: Schema, more: Mapping[str, Schema] | None = None) -> Schema:
    inputs = any_of(INPUTS, list_of(INPUTS, minItems=1))
    settings = _settings(any_of(ref(parameters), NULL))
    whole = closed({"inputs": inputs, **settings, **(more or {})}, "inputs")
    old = closed({**old["properties"], **settings}, *old["required"], description=OLD)
    return any_of(whole, old, INPUTS, list_of(INPUTS, minItems=1))


def _settings(parameters: Schema) -> dict[str, Schema]:
    """Return the keys other than the inputs."""
    return {"parameters": parameters, "target": TARGET, "options": OPTIONS}


def _instances(parameters: str, old: Schema) -> Schema:
    settings = _settings(ref(parameters))
    whole = closed({"inputs": INPUTS, **settings}, "inputs")
    short = closed({**old["properties"], **settings}, *old["required"])
    instances = list_of(any_of(INPUTS, whole, short), minItems=1)
    return closed({"instances": instances, "parameters": ref(parameters)}, "instances")


def _object_of_inputs(known: Mapping[str, Schema], columns: Sequence[Columns]) -> Schema:
    """Return the object form of a mode's columns, or an object with their only column."""
    kinds = [_resolved(each, known) for each in [known["Inputs"], *alternatives(known["Inputs"])]]
    column, names = columns[0][0], {name for each in columns for name in each}
    of_one = {"properties": {column: TEXT}, "required": [column]}
    found = (kind for kind in kinds if not names.isdisjoint(kind.get("properties", ())))
    return next(found, of_one)


def _resolved(schema: Schema, known: Mapping[str, Schema]) -> Schema:
    return known[schema["$ref"].removeprefix(COMPONENTS)] if "$ref" in schema else schema


def _explanation_parameters(mode: str, explanation_target: Any) -> Schema:
    defaults = explanation_target.default_parameters
    parameters = parameter_schemas(tasks.get(mode).parameters, defaults)
    explanation = explanation_target.parameter_schemas(gradients=True)
    target = {"description": _describe_target(explanation_target)}
    text = inspect.getdoc(explanation_target.parameters) or ""
    settings = {name: or_null(schema) for name, schema in {**parameters, **explanation}.items()}
    return closed({**settings, "target": target}, description=text)


def _describe_target(explanation_target: Any) -> str:
    """Return the paragraph of a module's docstring that describes `target`."""
    text = inspect.getdoc(sys.modules[explanation_target.__module__]) or ""
    return next((part for part in text.split("\n\n") if part.startswith("`target`")), "")
