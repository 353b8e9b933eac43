"""Scores of labels, and labels that a request names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import AliasChoices, Field

from ...config.messages import quote, suggest
from ...errors import BadRequest, RequestTooLarge, WrongConfig
from ...types.parameters import Parameters, check_text
from ..base import Label


def softmax(logits: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return probabilities that sum to 1 along the last axis."""
    shifted = np.exp(np.subtract(logits, logits.max(axis=-1, keepdims=True), dtype=np.float64))
    return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True))


def sigmoid(logits: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return each logit's own probability, without overflow for large negative ones."""
    return np.asarray(0.5 * (1 + np.tanh(0.5 * np.asarray(logits, dtype=np.float64))))


Function = Literal["sigmoid", "softmax", "none"]
FUNCTIONS: Mapping[Function, Callable[[npt.NDArray[Any]], npt.NDArray[Any]]] = {
    "sigmoid": sigmoid,
    "softmax": softmax,
    "none": np.asarray,
}


LABEL_KEYS = ("candidate_labels", "candidateLabels")
MAX_LABELS = 1_000
MAX_TEMPLATE = 1_000
PLACE = "{}"
Template = Annotated[str, Field(max_length=MAX_TEMPLATE)]


class CandidateLabelParameters(Parameters):
    """The labels that a request names."""

    candidate_labels: Annotated[list[str], Field(max_length=MAX_LABELS)] | str | None = Field(
        default=None, validation_alias=AliasChoices(*LABEL_KEYS)
    )
    """The labels to choose from: a list, or a text with commas between them. Without them, those of
    the inputs. Alias: `candidateLabels`."""


def split_inputs(inputs: Any) -> tuple[Any, dict[str, Any]]:
    """Return inputs without the labels among the keys of an object, and the labels."""
    if not isinstance(inputs, dict):
        return inputs, {}
    labels = {key: value for key, value in inputs.items() if key in LABEL_KEYS}
    return {key: value for key, value in inputs.items() if key not in LABEL_KEYS}, labels


def with_input_labels(
    parameters: dict[str, Any], labels: Mapping[str, Any], keys: Collection[str] = LABEL_KEYS
) -> dict[str, Any]:
    """Return the parameters of a request, with the labels of its inputs where they have none.

    `null` means the default, here as elsewhere: the labels of the inputs.

    Args:
        keys: the names of the parameter that has labels.
    """
    given = {name: each for name, each in parameters.items() if each is not None}
    return given if not given.keys().isdisjoint(keys) else {**labels, **given}


def best_labels(labels: Sequence[str], scores: npt.NDArray[Any], top_k: int | None) -> list[Label]:
    """Return labels with their scores, best first; all of them where `top_k` is None."""
    best = np.argsort(-scores, kind="stable")[:top_k]
    found: list[Label] = []
    for number in best:
        found.append({"label": labels[number], "score": float(scores[number])})
    return found


def read_labels(given: list[str] | str | None, max_labels: int, max_characters: int) -> list[str]:
    """Return the labels of a request.

    Raises:
        BadRequest: there are none, or one is empty.
        RequestTooLarge: there are too many, or one is too long.
    """
    if given is None:
        raise BadRequest("parameters has no candidate_labels; send the labels to choose from.")
    if isinstance(given, str):
        given = [label.strip() for label in given.split(",") if label.strip()]
    if not given:
        raise BadRequest("candidate_labels is empty; send at least one label.")
    if len(given) > max_labels:
        raise RequestTooLarge(
            f"candidate_labels has {len(given):,} labels, and this model takes {max_labels:,} a"
            " request; send fewer."
        )
    return [check_text(label, "candidate_labels", max_characters) for label in given]


def hypothesis(template: str, label: str) -> str:
    """Return the hypothesis of a label.

    Only the place of the label is filled: the template is a client's, and no format string.

    Raises:
        BadRequest: the template has no place, or several.
    """
    if template.count(PLACE) != 1:
        raise BadRequest(
            f"hypothesis_template has {PLACE} {template.count(PLACE)} times; write it once, in the"
            " place of the label."
        )
    return template.replace(PLACE, label)


def check_names(
    key: str, given: Iterable[str], known: Iterable[str], kind: str, remedy: str
) -> None:
    """Check the names of labels or categories that a key of the YAML has.

    Args:
        kind: what the known names are.
        remedy: what to do where there are none.

    Raises:
        WrongConfig: one is not known.
    """
    names = list(dict.fromkeys(known))
    for name in given:
        if name not in names:
            raise WrongConfig(
                f"handler.{key}",
                f"has {quote(name)}, which is not {kind}",
                suggest(name, names) if names else remedy,
            )
