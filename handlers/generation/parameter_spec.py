"""Which routes and back ends know a parameter of generation, and which of its values do nothing.

A :class:`ParameterSpec` is part of the type of each parameter in
:mod:`handlers.generation.parameters`. Parsing, refusals, `describe` and the documentation follow
from it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from enum import Enum
from functools import cache, partial
from typing import Any, Literal

from pydantic import BaseModel

# Stands for the name of the parameter itself.
SAME = "="
# Is no name of a back end: the kit turns the parameter into other settings.
INDIRECT = ""


class Beams(Enum):
    """Whether a back end does a parameter in a beam search."""

    EITHER = "yes"
    WITHOUT = "without beams"
    WITH = "with beams"


@dataclass(frozen=True)
class ParameterSpec:
    """Which routes and back ends know a parameter, besides those of Hugging Face.

    Attributes:
        neutral: the value that does nothing; None where only its absence does.
        default: what `generate` takes where neither the request nor the checkpoint has a value.
        needs: the parameter without which it does nothing.
        reads_prompt: whether it reads the tokens of a decoder's prompt, padding included.
        has_token_ids: whether its value has ids of tokens.
        openai: its key on OpenAI's routes; None where these have none, or other values.
        chat_only: whether only the messages of a chat have it there.
        tgi: whether text-generation-inference has it.
        transformers: whether `generate` does it, or the kit where it chooses tokens; None where it
            is not about the choice of tokens.
        genai: whether openvino-genai does it, by the same name; None where it does not.
        vllm: its name in vLLM's `SamplingParams`; None where vLLM does not do it.
    """

    neutral: Any = None
    _: KW_ONLY
    default: Any = None
    needs: Literal["do_sample", "num_beams"] | None = None
    reads_prompt: bool = False
    has_token_ids: bool = False
    openai: str | None = None
    chat_only: bool = False
    tgi: bool = False
    transformers: Literal["generate", "kit"] | None = None
    genai: Beams | None = None
    vllm: str | None = None

    def of(self, name: str) -> ParameterSpec:
        """Return it with the name of its parameter."""
        openai, vllm = (name if each == SAME else each for each in (self.openai, self.vllm))
        return replace(self, openai=openai, vllm=vllm)


by_generate = partial(ParameterSpec, transformers="generate")
by_kit = partial(ParameterSpec, transformers="kit")


@cache
def specs_of(parameters: type[BaseModel]) -> Mapping[str, ParameterSpec]:
    """Return the specification of each parameter that has one."""
    return {
        name: spec.of(name)
        for name, field in parameters.model_fields.items()
        for spec in field.metadata
        if isinstance(spec, ParameterSpec)
    }


@cache
def bounds_of(parameters: type[BaseModel]) -> Mapping[str, tuple[float, float]]:
    """Return the smallest and the largest value of each parameter that is a number."""
    found: dict[str, tuple[float, float]] = {}
    for name, schema in parameters.model_json_schema()["properties"].items():
        kinds = (schema, *schema.get("anyOf", ()))
        number = next((each for each in kinds if each.get("type") in ("integer", "number")), None)
        if number:
            least = number.get("minimum", number.get("exclusiveMinimum", -math.inf))
            most = number.get("maximum", number.get("exclusiveMaximum", math.inf + 1) - 1)
            found[name] = (least, most)
    return found
