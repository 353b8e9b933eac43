"""Explanation targets of modes whose rows are tokens: segments of texts and their attributions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

import numpy as np
from typing_extensions import TypedDict

from handlers.errors import BadRequest
from handlers.explainers._attribution import Attribution, AttributionTarget
from handlers.explainers._page import View, target_view
from handlers.explainers._segments import Segment
from handlers.explainers._tokens import ExplainedTextModel
from handlers.explainers._vectors import TokenVectors
from handlers.explainers.targets.base import BaseExplanationTarget, as_integer, require_keys
from handlers.model import Model
from handlers.process.deadline import Deadline
from handlers.tasks._text import TextTask
from handlers.tasks.base import Label
from handlers.types.parameters import TextExplanationParameters
from handlers.types.request import RequestState

TaskT = TypeVar("TaskT", bound=TextTask[Any, Any])


class Segments(TypedDict):
    """The tokens or words of an explanation, and its method.

    `offsets` are the first character of each and the one after its last, in the text whose number
    is in `sequence_ids`; null there means a special token. `converged` is null for methods whose
    attributions need not sum to the output.
    """

    words: list[str]
    offsets: list[tuple[int, int]]
    sequence_ids: list[int | None]
    method: str
    converged: bool | None
    warning: str | None


class Attributions(TypedDict):
    """A number for each word; their sum is `output` - `baseline_output` up to a delta."""

    attributions: list[float]
    output: float
    baseline_output: float
    convergence_delta: float


class Explanation(Segments, Attributions):
    """An explanation of one number; `importances` are the normalised attributions."""

    importances: list[float]
    delta: float


class Place(Label):
    """A label of some characters of the text."""

    start: int
    end: int


class TextExplanationTarget(BaseExplanationTarget[TaskT]):
    """The explanation target of a mode whose rows are tokens."""

    parameters = TextExplanationParameters
    model_type = ExplainedTextModel
    example_parameters: ClassVar[Mapping[str, Any]] = {
        "method": "feature_ablation",
        "granularity": "word",
    }
    legacy_keys: ClassVar[Sequence[str]] = ("words", "importances", "delta")
    default_method: ClassVar[str] = "layer_integrated_gradients"
    default_without_gradients: ClassVar[str] = "feature_ablation"
    # Whether a decoder reads other tokens than those that are explained.
    has_own_decoder: ClassVar[bool] = False

    @staticmethod
    def views(explanation: Mapping[str, Any]) -> Iterator[View]:
        return target_view(explanation)

    def explained(self, model: Model, deadline: Deadline) -> ExplainedTextModel:
        # A model that is loaded for explanations has embeddings only now.
        layers = model.embeddings
        padding = self.task.padding
        if self.task.per_token:
            # The index of a token is that in its row.
            padding = replace(padding, side="right")
        return ExplainedTextModel(
            forward=model.forward_with_gradients,
            has_gradients=bool(layers),
            budget=0 if model.runs_alone else self.task.budget,
            deadline=deadline,
            vectors=TokenVectors(layers, has_own_decoder=self.has_own_decoder) if layers else None,
            padding=padding,
            baseline_token_id=self.task.checkpoint.baseline_token_id,
            padded_limit=model.padded_limit,
        )


def target_at(
    state: RequestState, row: int, segments: Sequence[Segment], output: str, index: tuple[int, ...]
) -> AttributionTarget:
    """Return one number of a request's outputs as a target of attribution."""
    score = float(state.outputs[row][output][index])
    return AttributionTarget(state.rows[row], segments, output, index, score)


def tokens_at(target: Mapping[str, Any], state: RequestState) -> list[int]:
    """Return the token, or the tokens of the characters, that a target names.

    Args:
        target: `{"token": 1}`, or `{"start": 0, "end": 6}`.
        state: the request, with one text and one row.

    Raises:
        BadRequest: the text has no such token or characters.
    """
    offsets = state.rows[0].encoding.offsets
    if "token" in target and target.keys() & {"start", "end"}:
        raise BadRequest("target has a token and characters; send one of them.")
    if "token" in target:
        return [as_integer(target["token"], "the token in target", len(offsets))]
    require_keys(target, "start", "end")
    length = len(state.input.text) + 1
    start, end = (as_integer(target[key], f"target's {key}", length) for key in ("start", "end"))
    places = enumerate(offsets)
    tokens = [number for number, (first, last) in places if first < end and last > start]
    if not tokens or end <= start:
        raise BadRequest(f"target's characters {start} to {end} hold no token of the text.")
    return tokens


def segment_texts(selected_target: AttributionTarget) -> dict[str, Any]:
    """Return the segments of a target: their texts and their offsets in the inputs."""
    return {
        "words": [segment.text for segment in selected_target.segments],
        "offsets": [[segment.start, segment.end] for segment in selected_target.segments],
        "sequence_ids": [segment.sequence for segment in selected_target.segments],
    }


def explanation_fields(
    selected_target: AttributionTarget, attribution: Attribution
) -> dict[str, Any]:
    """Return what explanations of one number have in common: the segments and what they add."""
    return {
        **segment_texts(selected_target),
        "importances": normalized(attribution),
        "delta": attribution.delta,
        **attribution_sums(attribution),
    }


def normalized(attribution: Attribution) -> list[float]:
    """Return the values divided by their Euclidean norm, the importances of the old example."""
    values = attribution.values
    return [float(value) for value in values / (float(np.linalg.norm(values)) or 1.0)]


def attribution_sums(attribution: Attribution) -> dict[str, Any]:
    """Return the values without normalisation, and the error of their sum."""
    return {
        "attributions": [float(value) for value in attribution.values],
        "output": attribution.output,
        "baseline_output": attribution.baseline,
        "convergence_delta": attribution.delta,
        "converged": attribution.converged,
    }
