"""What a request to `/explanations` may set beside its mode's own parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from handlers.config.choices import module_names, suggest
from handlers.schemas.parameters import Parameters

Granularity = Literal["token", "word"]


class ExplanationParameters(Parameters):
    """How to explain.

    `method` is the name of a file in `handlers/explainers/`; `target` what is explained, each mode
    says in which form, the prediction by default; `granularity` tokens or words; `n_steps` of
    integrated gradients, by default as many as it takes; `n_samples` of the sampling methods.
    """

    method: str | None = None
    target: Any = None
    granularity: Granularity = "token"
    n_steps: Annotated[int, Field(ge=1, le=1000)] | None = None
    n_samples: Annotated[int, Field(ge=1, le=10_000)] | None = None

    @field_validator("method")
    @classmethod
    def _method_has_a_file(cls, word: str | None) -> str | None:
        known = module_names("explainers")
        if word is not None and word not in known:
            raise ValueError(f"is {word!r}; {suggest(word, known)}")
        return word


def split(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parameters that say how to explain, and those that are the mode's own."""
    ours = {key: given[key] for key in given if key in ExplanationParameters.model_fields}
    return ours, {key: given[key] for key in given if key not in ours}
