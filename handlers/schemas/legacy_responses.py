"""What TorchServe's own Hugging Face example answered, made from what the tasks answer.

A text classifier told its label and nothing else, token classification a pair of token and label
for every token, question answering and generation the bare text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

EXPLAINED = (
    "words",
    "importances",
    "delta",
    "importances_answer_start",
    "importances_answer_end",
    "delta_start",
    "delta_end",
)


@dataclass(frozen=True)
class LegacyResponse:
    """How one mode answered.

    Attributes:
        parameters: what is asked of the task, so that it answers all that is told.
        of: the old answer that the task's answer makes.
    """

    parameters: Mapping[str, Any]
    of: Callable[[Any], Any]


def legacy_explanation(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return of an explanation what the old example told."""
    return {key: told[key] for key in EXPLAINED if key in told}


def _label(labels: Any) -> str:
    return str(labels[0]["label"])


def _pairs(tokens: Any) -> list[list[str]]:
    """Return every token with its label; of padding, which the old example had too, nothing."""
    return [[token["word"], token["entity"]] for token in tokens]


def _answer(found: Any) -> str:
    return str(found["answer"])


def _text(texts: Any) -> str:
    """Return prompt and continuation; of a chat, the new message alone."""
    text = texts[0]["generated_text"]
    return str(text if isinstance(text, str) else text[-1]["content"])


LEGACY_RESPONSES: dict[str, LegacyResponse] = {
    "sequence_classification": LegacyResponse({"top_k": 1}, _label),
    "token_classification": LegacyResponse(
        {
            "aggregation_strategy": "none",
            "ignore_labels": [],
            "special_tokens": True,
            "stride": None,
        },
        _pairs,
    ),
    "question_answering": LegacyResponse({"top_k": 1}, _answer),
    "text_generation": LegacyResponse({"return_full_text": True}, _text),
}
