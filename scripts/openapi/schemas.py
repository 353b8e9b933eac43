"""The types of a mode's requests and results, as the components of a document."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, NotRequired

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from handlers import tasks
from handlers.explainers import targets
from handlers.protocols.openai.bodies import ChatBody, CompletionBody
from handlers.protocols.openai.images import ImageBody
from handlers.protocols.openai.responses import ResponseBody
from handlers.protocols.vllm import DetokenizeBody
from handlers.schemas.json_schema import PlainSchema
from handlers.tasks._text import TextTask
from handlers.tasks.text_to_image import GeneratedImage
from scripts.openapi import audio, embedding_servers, inference, openai, tgi, vllm
from scripts.openapi.bodies import bodies
from scripts.openapi.shapes import PLACE, Schema, or_null, ref
from scripts.openapi.token_events import TokenEvent


class Error(TypedDict):
    """An error in TorchServe's own shape; in a list, in the place of the result.

    A response that is one error has the keys of text-generation-inference as well.
    """

    code: int
    type: str
    message: str
    error: NotRequired[str]
    error_type: NotRequired[Literal["validation", "overloaded", "generation"]]


class ProtocolError(TypedDict):
    """An error as KServe's V1 and the Open Inference Protocol have it."""

    error: str


class Health(TypedDict):
    """Whether every model has a worker that answers."""

    status: Literal["Healthy", "Partial Healthy", "Unhealthy"]


class StepEvent(TypedDict, total=False):
    """One event of a stream of images: a step, or at the end the whole result."""

    step: int
    steps: int
    result: list[GeneratedImage]


COMMON: tuple[Any, ...] = (
    Error,
    ProtocolError,
    Health,
    inference.InferenceRequest,
    inference.InferenceResponse,
    tgi.GenerationError,
    tgi.ServedInfo,
)
TOKENIZED: tuple[Any, ...] = (
    tgi.InputToken,
    vllm.DetokenizedPrompt,
    vllm.TokenizedPrompt,
    DetokenizeBody,
)
OPENAI: tuple[Any, ...] = (
    ChatBody,
    CompletionBody,
    openai.ChatCompletion,
    openai.ChatCompletionChunk,
    openai.ChatMessage,
    openai.Completion,
    openai.CompletionChunk,
    openai.ModelList,
    openai.OpenAIError,
    openai.Response,
    openai.ResponseEvent,
    ResponseBody,
)
DRAWN: tuple[Any, ...] = (
    ImageBody,
    StepEvent,
    openai.ImageEvent,
    openai.ImagesResponse,
    openai.ModelList,
    openai.OpenAIError,
)
STREAMED: tuple[Any, ...] = (tgi.GenerateResult, TokenEvent)


def schemas(mode: str) -> dict[str, Schema]:
    """Return every schema of a mode's document by name."""
    task = tasks.get(mode)
    continues_prompts = task.generates and not task.is_encoder_decoder
    kinds = [*COMMON, task.parameters]
    kinds += TOKENIZED if issubclass(task, TextTask) else ()
    kinds += DRAWN if task.draws else ()
    kinds += STREAMED if task.generates else ()
    kinds += OPENAI if continues_prompts else ()
    kinds += [*embedding_servers.component_types(mode), *audio.component_types(mode)]
    if target := targets.get(mode):
        kinds.append(target.results)
    by_name = {kind.__name__: kind for kind in kinds}
    found = _schemas_of({"Inputs": task.inputs, "Result": task.results, **by_name})
    parameters = found[task.parameters.__name__]["properties"]
    found[task.parameters.__name__]["properties"] = {
        name: or_null(schema) for name, schema in parameters.items()
    }
    if continues_prompts:
        found["ChatBody"]["properties"]["messages"]["items"] = ref("ChatMessage")
    embedding_servers.refine(found)
    audio.refine(found)
    return found | bodies(mode, found)


def _schemas_of(kinds: Mapping[str, Any]) -> dict[str, Schema]:
    """Return the schema of each type, and of every named type that it contains."""
    adapters: list[Any] = [(name, "validation", TypeAdapter(kind)) for name, kind in kinds.items()]
    by_key, rest = TypeAdapter.json_schemas(
        adapters,
        by_alias=False,
        ref_template=PLACE + "{model}",
        schema_generator=PlainSchema,
    )
    own = {name: schema for (name, _), schema in by_key.items() if schema != ref(name)}
    # Types whose schema stands in that of a parameter are not referred to.
    inner = rest.get("$defs", {})
    text = json.dumps([*inner.values(), *by_key.values()])
    used = {name: schema for name, schema in inner.items() if f'"{PLACE}{name}"' in text}
    return {**used, **own}
