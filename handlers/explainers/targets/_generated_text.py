"""Which words led to each token of a generated text, for every mode that generates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from typing_extensions import TypedDict

from handlers import explainers
from handlers.batching.tokenization import tokenize
from handlers.errors import BadRequest, DeadlineExceeded, RequestError, TextTooLong, attempt
from handlers.explainers._attribution import Attribution, AttributionTarget
from handlers.explainers._generation_attribution import GenerationAttribution, Values
from handlers.explainers._page import View, target_view, text_view
from handlers.explainers._runner import method_for, with_method
from handlers.explainers._segments import Segment, segment_tokens
from handlers.explainers._time_shares import TimeShares, weights_of
from handlers.explainers._tokens import ExplainedTextModel
from handlers.explainers.targets._text import (
    TextExplanationTarget,
    explanation_fields,
    normalized,
)
from handlers.process.deadline import Deadline
from handlers.tasks.text_generation import GenerationTask
from handlers.types.request import RequestState
from handlers.types.text_checks import check_text

GenerationTaskT = TypeVar("GenerationTaskT", bound=GenerationTask[Any])


class TokenWeight(TypedDict):
    """The importance of each word of the prompt for one token of the text."""

    token: str
    score: float
    importances: list[float]
    delta: float


@dataclass(frozen=True)
class Plan:
    """A request with its method and the tokens to explain."""

    state: RequestState
    method: str
    target: list[int]

    @property
    def cost(self) -> int:
        """Approximate number of tokens to compute; gradients are computed for each token."""
        row, explainer = self.state.rows[0], explainers.get(self.method)
        tokens = segment_tokens(row, [self.state.input.prompt], "token")
        whole = AttributionTarget(row, tokens, "logits", ())
        passes = explainer().forwards(whole, self.state.settings)
        repeats = len(self.target) if explainer.needs_gradients else 1
        return (len(row) + len(self.target)) * passes * repeats


class GeneratedTextTarget(TextExplanationTarget[GenerationTaskT]):
    """Explains the log-probability of every produced token, and of the whole text.

    `target` is a text to be explained instead of the one that the model produces.
    """

    default_method = "feature_ablation"
    has_own_decoder = True
    default_parameters = {"max_new_tokens": 10}

    def attribute(
        self, states: Sequence[RequestState], model: ExplainedTextModel
    ) -> list[dict[str, Any] | RequestError]:
        planned = [attempt(self._plan, state, model) for state in states]
        plans = sorted(
            (plan for plan in planned if isinstance(plan, Plan)), key=lambda plan: plan.cost
        )
        weights = weights_of([plan.state.http_request_id for plan in plans])
        shares = TimeShares(model.deadline, weights, model.cheaper)
        outcomes = {
            id(plan): attempt(self._explain, plan, model, shares.take([weight]), shares)
            for plan, weight in zip(plans, weights, strict=True)
        }
        return [plan if isinstance(plan, RequestError) else outcomes[id(plan)] for plan in planned]

    def select(self, state: RequestState) -> list[AttributionTarget]:
        segments = segment_tokens(state.rows[0], [state.input.prompt], state.settings.granularity)
        return [AttributionTarget(state.rows[0], segments, "logits", ())]

    def to_response(
        self,
        state: RequestState,
        selected: Sequence[AttributionTarget],
        attributions: Sequence[Attribution],
    ) -> dict[str, Any]:
        whole, *tokens = attributions
        return {
            **explanation_fields(selected[0], whole),
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
    def views(explanation: Mapping[str, Any]) -> Iterator[View]:
        yield from target_view(explanation)
        for token in explanation["tokens"]:
            title = f"Importance for the token “{token['token']}”"
            yield text_view(title, explanation, token["importances"])

    def decoder_start(self, state: RequestState) -> Sequence[int]:
        """Return the tokens that a decoder reads before a text; none where it continues one."""
        return ()

    def chosen_tokens(self, state: RequestState, tokens: list[int]) -> list[int]:
        """Return the tokens of a text that the model has chosen itself."""
        return tokens

    def check_target(self, state: RequestState, ids: Sequence[int]) -> None:
        """Check that the model has positions for a text.

        Raises:
            RequestTooLarge: it has too few.
        """
        limit = self.task.checkpoint.limit
        if limit and len(state.rows[0]) + len(ids) > limit:
            raise TextTooLong(
                f"prompt and target have {len(state.rows[0]) + len(ids):,} tokens, and this model "
                f"takes {limit:,}; shorten one of them."
            )

    def _plan(self, state: RequestState, model: ExplainedTextModel) -> Plan:
        return Plan(state, method_for(state.settings, self, model), self._target(state))

    def _explain(
        self, plan: Plan, model: ExplainedTextModel, share: Deadline, shares: TimeShares
    ) -> dict[str, Any]:
        state, method, target = plan.state, plan.method, plan.target
        attribution = GenerationAttribution(
            replace(model, deadline=share),
            self.task.tokenizer,
            state.rows[0],
            target,
            state.settings,
            self.decoder_start(state),
        )
        try:
            values = attribution.attribute(method)
            log_probabilities, blank = attribution.log_probabilities()
        except DeadlineExceeded:
            raise shares.timed_out(method, share) from None
        selected_target = self.select(state)[0]
        response = self.to_response(
            state,
            [selected_target],
            _attributions(values, log_probabilities, blank, selected_target.segments),
        )
        for token, number in zip(response["tokens"], target, strict=False):
            token["token"] = self.task.tokenizer.decode([number])
        text = self.task.tokenizer.decode(target, skip_special_tokens=True)
        response |= {
            "prediction": self._first_text(state),
            "target": {"label": text, "score": float(np.exp(log_probabilities.sum()))},
        }
        return with_method(response, method)

    def _first_text(self, state: RequestState) -> Any:
        decoded = self.task.decode(state.input, state.rows, state.outputs)
        return decoded[0] if isinstance(decoded, list) else decoded

    def _target(self, state: RequestState) -> list[int]:
        wanted = state.settings.target
        if wanted is None:
            ids = self.chosen_tokens(state, state.outputs[0]["sequences"][0].tolist())
        else:
            text = check_text(wanted, "target", self.task.max_characters)
            tokenized = tokenize(self.task.tokenizer, [(text, None)], add_special_tokens=False)
            ids = tokenized["input_ids"][0]
        if not ids:
            raise BadRequest("The model produces nothing for this prompt; give a target text.")
        self.check_target(state, ids)
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
