"""The parameters of `/explanations` beside those of the mode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from handlers.config.choices import module_names, suggest
from handlers.config.quoting import quote
from handlers.schemas.parameters import Parameters

Granularity = Literal["token", "word"]


class ExplanationParameters(Parameters):
    """How to explain.

    `method` is the name of a file in `handlers/explainers/`; `target` what is explained, each mode
    says in which form, the prediction by default; `granularity` tokens or words; `n_steps` of
    integrated gradients, by default as many as it takes; `n_samples` of the sampling methods.
    """

    method: str | None = None
    """Attribution method, see [Methods](#methods). Without it, the default of the mode."""
    target: Any = None
    """What is explained, see [Targets](#targets). Without it, the prediction."""
    granularity: Granularity = "token"
    """Unit of the attributions."""
    n_steps: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Steps of `layer_integrated_gradients`. Without it, as many as convergence needs."""
    n_samples: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Samples of `shapley_value_sampling` and `kernel_shap`."""

    @field_validator("method")
    @classmethod
    def _method_has_a_file(cls, word: str | None) -> str | None:
        known = module_names("explainers")
        if word is not None and word not in known:
            raise ValueError(f"is {quote(word)}; {suggest(word, known)}")
        return word


def split_parameters(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parameters of the explanation, and those of the mode."""
    explanation = {key: given[key] for key in given if key in ExplanationParameters.model_fields}
    return explanation, {key: given[key] for key in given if key not in explanation}
