"""Which prompt tokens led to each produced token.

`target` is a text to be explained instead of the one that the model produces.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from typing_extensions import TypedDict

from handlers.errors import BadRequest, RequestError, RequestTooLarge, attempt
from handlers.explainers._attribution import Attribution, AttributionTarget
from handlers.explainers._generation_attribution import GenerationAttribution, Values
from handlers.explainers._page import target_view
from handlers.explainers._runner import method_for, timed_out, with_method
from handlers.explainers._segments import Segment, segment_tokens
from handlers.explainers.base import ExplainedModel
from handlers.explainers.targets.base import (
    BaseExplanationTarget,
    Explanation,
    attribution_sums,
    normalized,
    segment_texts,
)
from handlers.runtime.deadline import DeadlineExceeded
from handlers.runtime.jobs import Job
from handlers.schemas.text_checks import check_text
from handlers.tasks.base import Label
from handlers.tasks.text_generation import Generated, Task


class TokenWeight(TypedDict):
    """The importance of each word of the prompt for one token of the text."""

    token: str
    score: float
    importances: list[float]
    delta: float


class TextExplanation(Explanation):
    """Which words of the prompt led to a text, as a whole and token by token."""

    tokens: list[TokenWeight]
    prediction: Generated
    target: Label


class ExplanationTarget(BaseExplanationTarget[Task]):
    """Explains the log-probability of every produced token, and of the whole text."""

    results = TextExplanation
    example_target = " there was a fox"

    default_method = "feature_ablation"
    default_parameters = {"max_new_tokens": 10}

    def explain(
        self, jobs: Sequence[Job], model: ExplainedModel
    ) -> list[dict[str, Any] | RequestError]:
        return [attempt(self._explain, job, model) for job in jobs]

    def select(self, job: Job) -> list[AttributionTarget]:
        segments = segment_tokens(job.rows[0], [job.query.prompt], job.settings.granularity)
        return [AttributionTarget(job.rows[0], segments, "logits", ())]

    def to_response(
        self, job: Job, selected: Sequence[AttributionTarget], attributions: Sequence[Attribution]
    ) -> dict[str, Any]:
        whole, *tokens = attributions
        return {
            **segment_texts(selected[0]),
            "importances": normalized(whole),
            "delta": whole.delta,
            **attribution_sums(whole),
            "tokens": [
                {
                    "score": float(np.exp(token.output)),
                    "importances": normalized(token),
                    "delta": token.delta,
                }
                for token in tokens
            ],
        }

    @staticmethod
    def views(explanation: Mapping[str, Any]) -> Iterator[tuple[str, Sequence[float]]]:
        yield from target_view(explanation)
        for token in explanation["tokens"]:
            yield f"Importance for the token “{token['token']}”", token["importances"]

    def _explain(self, job: Job, model: ExplainedModel) -> dict[str, Any]:
        method = method_for(job.settings, self, model)
        target = self._target(job)
        attribution = GenerationAttribution(
            model, self.task.tokenizer, job.rows[0], target, job.settings
        )
        try:
            values = attribution.attribute(method)
            log_probabilities, blank = attribution.log_probabilities()
        except DeadlineExceeded:
            raise timed_out(method, model.deadline.seconds) from None
        selected_target = self.select(job)[0]
        response = self.to_response(
            job,
            [selected_target],
            _attributions(values, log_probabilities, blank, selected_target.segments),
        )
        for token, number in zip(response["tokens"], target, strict=False):
            token["token"] = self.task.tokenizer.decode([number])
        text = self.task.tokenizer.decode(target, skip_special_tokens=True)
        response |= {
            "prediction": self.task.decode(job.query, job.rows, job.outputs)[0],
            "target": {"label": text, "score": float(np.exp(log_probabilities.sum()))},
        }
        return with_method(response, method)

    def _target(self, job: Job) -> list[int]:
        wanted = job.settings.target
        if wanted is None:
            ids: list[int] = job.outputs[0]["sequences"][0].tolist()
        else:
            text = check_text(wanted, "target", self.task.max_characters)
            ids = self.task.tokenizer(text, add_special_tokens=False)["input_ids"]
        if not ids:
            raise BadRequest("The model produces nothing for this prompt; give a target text.")
        limit = self.task.checkpoint.limit
        if limit and len(job.rows[0]) + len(ids) > limit:
            raise RequestTooLarge(
                f"prompt and target have {len(job.rows[0]) + len(ids):,} tokens, and this model "
                f"takes {limit:,}; shorten one of them."
            )
        return ids


def _attributions(
    values: Values, log_probabilities: Values, blank: Values, segments: Sequence[Segment]
) -> list[Attribution]:
    """Return the attribution of the whole text and, if the method gives it, of each token."""
    joined = np.stack([values[:, list(segment.tokens)].sum(axis=1) for segment in segments], axis=1)
    whole = Attribution(joined.sum(axis=0), float(log_probabilities.sum()), float(blank.sum()))
    if len(joined) != len(log_probabilities):
        return [whole]
    rows = zip(joined, log_probabilities.tolist(), blank.tolist(), strict=True)
    return [whole, *(Attribution(*row) for row in rows)]
