"""Which routes and back ends support a parameter of generation, and which values are neutral.

A :class:`ParameterSpec` is part of the type of each parameter in
:mod:`hf_serve.handlers.generation.parameters`. Parsing, refusals, `describe` and the documentation
are derived from it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from enum import Enum
from functools import cache, partial
from typing import Any, Literal

from pydantic import BaseModel

# Stands for the name of the parameter itself.
SAME = "="
# No name of a back end: the parameter becomes other settings.
INDIRECT = ""


class Beams(Enum):
    """Whether a back end supports a parameter in a beam search."""

    EITHER = "yes"
    WITHOUT = "without beams"
    WITH = "with beams"


@dataclass(frozen=True)
class ParameterSpec:
    """Which routes and back ends support a parameter, besides Hugging Face's own.

    Attributes:
        neutral: the value without an effect; None where only the absence of a value has none.
        default: what `generate` takes where neither the request nor the checkpoint has a value.
        needs: the parameter without which it has no effect.
        reads_prompt: whether it reads the tokens of a decoder's prompt, padding included.
        has_token_ids: whether its value has ids of tokens.
        openai: its key on OpenAI's routes; None where these have none, or other values.
        chat_only: whether OpenAI's routes have it for chats only.
        tgi: whether text-generation-inference has it.
        transformers: what applies it to the choice of tokens: `generate`, or one of the package's
            logits processors; None where it is not about the choice of tokens.
        genai: whether openvino-genai supports it, by the same name; None where it does not.
        vllm: its name in vLLM's `SamplingParams`; None where vLLM does not support it.
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
    transformers: Literal["generate", "logits_processor"] | None = None
    genai: Beams | None = None
    vllm: str | None = None

    def of(self, name: str) -> ParameterSpec:
        """Return it with the name of its parameter."""
        openai, vllm = (name if each == SAME else each for each in (self.openai, self.vllm))
        return replace(self, openai=openai, vllm=vllm)


by_generate = partial(ParameterSpec, transformers="generate")
by_processor = partial(ParameterSpec, transformers="logits_processor")


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
def names_applied_by(
    parameters: type[BaseModel], applied_by: Literal["generate", "logits_processor"]
) -> set[str]:
    """Return the names of the parameters that `generate` or a logits processor applies."""
    specs = specs_of(parameters).items()
    return {name for name, spec in specs if spec.transformers == applied_by}


@cache
def token_id_parameters(parameters: type[BaseModel]) -> Sequence[str]:
    """Return the names of the parameters whose values have ids of tokens."""
    return [name for name, spec in specs_of(parameters).items() if spec.has_token_ids]


@dataclass(frozen=True)
class Bounds:
    """The smallest and the largest value of a parameter, and whether it must be an integer."""

    least: float
    most: float
    is_integer: bool = False

    def allow(self, value: Any) -> bool:
        """Return whether a value is a number within the bounds."""
        if not isinstance(value, int | float) or not self.least <= value <= self.most:
            return False
        return not self.is_integer or isinstance(value, int) or value.is_integer()

    def __str__(self) -> str:
        if math.isinf(self.most):
            return f"{self.least:g} or more"
        return f"{'integers from ' if self.is_integer else ''}{self.least:g} to {self.most:,}"


@cache
def bounds_of(parameters: type[BaseModel]) -> Mapping[str, Bounds]:
    """Return the bounds of each parameter that is a number."""
    found: dict[str, Bounds] = {}
    for name, schema in parameters.model_json_schema()["properties"].items():
        kinds = (schema, *schema.get("anyOf", ()))
        number = next((each for each in kinds if each.get("type") in ("integer", "number")), None)
        if number:
            least = number.get("minimum", number.get("exclusiveMinimum", -math.inf))
            most = number.get("maximum", number.get("exclusiveMaximum", math.inf + 1) - 1)
            found[name] = Bounds(least, most, number["type"] == "integer")
    return found
