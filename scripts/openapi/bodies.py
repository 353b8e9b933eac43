"""The bodies of predictions and explanations, from the inputs and parameters of a mode."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from typing import Any

from handlers import tasks
from handlers.explainers import targets
from handlers.types.parameters import parameter_schemas
from scripts.openapi.shapes import (
    NULL,
    PLACE,
    TEXT,
    Schema,
    alternatives,
    any_of,
    closed,
    list_of,
    or_null,
    ref,
)

OPTIONS = {"type": "object", "description": "For Hugging Face's hub; not read here."}
TARGET = {"description": "What is explained, by `/explanations` only."}
STREAM: dict[str, Schema] = {"stream": {"type": ["boolean", "null"], "default": False}}
INPUTS = ref("Inputs")
OLD = "A body of TorchServe's own Hugging Face example."


def bodies(mode: str, known: Mapping[str, Schema]) -> dict[str, Schema]:
    """Return the bodies of a mode by name.

    Args:
        mode: the mode.
        known: the components of its types.
    """
    task = tasks.get(mode)
    old = _object_of_inputs(known, task.input_columns[0][0])
    parameters = task.parameters.__name__
    found = {
        "PredictionBody": _body(parameters, old, STREAM if task.generates else {}),
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
    """Return the keys beside the inputs."""
    return {"parameters": parameters, "target": TARGET, "options": OPTIONS}


def _instances(parameters: str, old: Schema) -> Schema:
    settings = _settings(ref(parameters))
    whole = closed({"inputs": INPUTS, **settings}, "inputs")
    short = closed({**old["properties"], **settings}, *old["required"])
    instances = list_of(any_of(INPUTS, whole, short), minItems=1)
    return closed({"instances": instances, "parameters": ref(parameters)}, "instances")


def _object_of_inputs(known: Mapping[str, Schema], column: str) -> Schema:
    """Return the object form of a mode's inputs; that of their column where they are one value."""
    kinds = [_resolved(each, known) for each in [known["Inputs"], *alternatives(known["Inputs"])]]
    of_one = {"properties": {column: TEXT}, "required": [column]}
    return next((kind for kind in kinds if kind.get("type") == "object"), of_one)


def _resolved(schema: Schema, known: Mapping[str, Schema]) -> Schema:
    return known[schema["$ref"].removeprefix(PLACE)] if "$ref" in schema else schema


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
