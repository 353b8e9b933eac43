"""The types of a mode's requests and responses, as the components of a document."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from handlers import tasks
from handlers.errors import ErrorBody, WholeErrorBody
from handlers.explainers import targets
from handlers.protocols.hugging_face import StepEvent, TokenEvent
from handlers.protocols.kserve_v1 import KServeError
from handlers.protocols.open_inference.protocol import InferenceResponse
from handlers.protocols.open_inference.tensors import InferenceRequest
from handlers.protocols.openai.types import ChatMessage
from handlers.protocols.routes import Route
from handlers.types.parameters import PlainSchema
from scripts.openapi.bodies import bodies
from scripts.openapi.shapes import NULL, PLACE, Schema, any_of, or_null, ref


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
        components: every component by its name.
        by_type: the schema of each type, which may refer to components.
    """

    components: Mapping[str, Schema]
    by_type: Mapping[Any, Schema]


def schemas(mode: str, routes: Iterable[Route]) -> Schemas:
    """Return the schemas of a mode's document, whose models have some routes."""
    task, target = tasks.get(mode), targets.get(mode)
    kinds: list[Any] = [*COMMON, task.parameters]
    kinds += [TokenEvent] if task.generates else []
    kinds += [StepEvent] if task.draws else []
    kinds += [target.results] if target else []
    for route in routes:
        kinds += [route.body, route.response, route.error, route.part]
    if any(route.name == "chat" for route in routes):
        kinds.append(ChatMessage)
    named = {"Inputs": task.inputs, "Result": task.results}
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
    """Return the components of types with a name here or of their own, and the schema of each."""
    adapters: list[Any] = [
        (kind, "validation", TypeAdapter(kind)) for kind in dict.fromkeys([*named.values(), *kinds])
    ]
    by_key, rest = TypeAdapter.json_schemas(
        adapters,
        by_alias=False,
        ref_template=PLACE + "{model}",
        schema_generator=PlainSchema,
    )
    by_type = {kind: schema for (kind, _), schema in by_key.items()}
    own = {name: by_type[kind] for name, kind in named.items() if by_type[kind] != ref(name)}
    # Types whose schema stands in that of a parameter are not referred to.
    inner = rest.get("$defs", {})
    text = json.dumps([*inner.values(), *by_key.values()])
    used = {name: schema for name, schema in inner.items() if f'"{PLACE}{name}"' in text}
    return {**used, **own}, by_type
