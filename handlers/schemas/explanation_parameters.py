"""The parameters of `/explanations` beside those of the mode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt, ValidationInfo, field_validator

from handlers.config.choices import module_names, suggest
from handlers.config.quoting import quote
from handlers.schemas.parameters import Parameters

Granularity = Literal["token", "word"]
BaselineImage = Literal["mean", "blur", "black"]


class ExplanationParameters(Parameters):
    """How to explain, whatever the rows of the mode are.

    `method` is the name of a file in `handlers/explainers/`; `target` what is explained, each mode
    says in which form, the prediction by default; `n_steps` of integrated gradients, by default as
    many as it takes; `n_samples` of the sampling methods.
    """

    method: str | None = None
    """Attribution method, see [Methods](#methods). Without it, the default of the mode."""
    target: Any = None
    """What is explained, see [Targets](#targets). Without it, the prediction."""
    n_steps: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Steps of `layer_integrated_gradients` and `integrated_gradients`. Without it, as many as
    convergence needs."""
    n_samples: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Samples of `shapley_value_sampling` and `kernel_shap`."""

    @field_validator("method")
    @classmethod
    def _method_has_a_file(cls, word: str | None) -> str | None:
        known = module_names("explainers")
        if word is not None and word not in known:
            raise ValueError(f"is {quote(word)}; {suggest(word, known)}")
        return word


class TextExplanationParameters(ExplanationParameters):
    """How to explain by the tokens or words of texts."""

    granularity: Granularity = "token"
    """Unit of the attributions."""


class ImageExplanationParameters(ExplanationParameters):
    """How to explain by the patches of an image."""

    resolution: Annotated[int, Field(ge=2, le=64)] = 14
    """Patches along the longer side of the image, the unit of the attributions."""
    baseline: BaselineImage = "mean"
    """What replaces the image, or a part of it: its mean colour, the image blurred, or black."""
    window: PositiveInt = 2
    """Side of the square that `occlusion` covers, in patches."""
    stride: PositiveInt = 1
    """Distance between two squares of `occlusion`, in patches; at most `window`."""

    @field_validator("stride")
    @classmethod
    def _every_patch_is_covered(cls, stride: int, info: ValidationInfo) -> int:
        window = info.data.get("window", stride)
        if stride > window:
            raise ValueError(f"is {stride} and window {window}; send at most window")
        return stride


def split_parameters(
    kind: type[ExplanationParameters], given: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parameters of the explanation, which are of a kind, and those of the mode."""
    explanation = {key: given[key] for key in given if key in kind.model_fields}
    return explanation, {key: given[key] for key in given if key not in explanation}
