"""Why a token or a span got its label.

`target` is, for

- a token: `[token, class]`, `{"token": 1, "label": "B-PER"}` or a character span
  `{"start": 0, "end": 6}` with or without a label; by default the surest token that is in an
  entity. A span's tokens are explained together: the mean of their logits.
- a span of a model that reads labels: the number of a span among the entities of the answer, or
  `{"start": 0, "end": 6, "label": "person"}`, where the label may be left out; by default the
  surest entity. Of a model that scores words, the logit of the word that makes a span least sure
  is explained.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...batching.words import WORDS
from ...checkpoints.gliner import OUTPUT
from ...errors import BadRequest
from ...tasks import token_classification, zero_shot_token_classification
from ...tasks.bases.labels import sigmoid, softmax
from ...tasks.zero_shot_token_classification import FIRST, INSIDE, LAST, ExtractionInput, WordSpan
from ...types.request import RequestState
from ..base import AttributionTarget
from ..bases.text import Explanation, Place, TextExplanationTarget, target_at, tokens_at
from .base import as_integer, candidate_number, require_keys


class TokensTarget(Place):
    """The class that is explained, and for which tokens."""

    index: int
    tokens: list[int]


class TokenExplanation(Explanation):
    """Why tokens got a label."""

    prediction: Place
    target: TokensTarget


class EntityTarget(TextExplanationTarget[token_classification.Task]):
    """Explains the logit of one class for one token, or for the tokens of a span."""

    results = TokenExplanation
    example_target = (1, 0)

    def select(self, state: RequestState) -> list[AttributionTarget]:
        row, tokens, label = self._target(state)
        segments = self.segments(state, row)
        return [target_at(state, row, segments, "logits", (token, label)) for token in tokens]

    def describe(self, state: RequestState, selected: AttributionTarget) -> dict[str, Any]:
        row, tokens, label = self._target(state)
        scores = softmax(state.outputs[row]["logits"])[tokens].mean(axis=0)
        offsets = state.rows[row].encoding.offsets
        place = {"start": offsets[tokens[0]][0], "end": offsets[tokens[-1]][1]}
        return {
            "prediction": {**self.named(state, int(scores.argmax()), scores), **place},
            "target": {
                **self.named(state, label, scores),
                "index": label,
                "tokens": tokens,
                **place,
            },
        }

    def _target(self, state: RequestState) -> tuple[int, list[int], int]:
        """Return the number of a window of the text, tokens of it, and a class."""
        target, scores = state.settings.target, softmax(state.outputs[0]["logits"])
        if target is None:
            row, token = self._surest(state)
            return row, [token], int(state.outputs[row]["logits"][token].argmax())
        if isinstance(target, (list, tuple)) and len(target) == 2:
            token = as_integer(target[0], "the token in target", len(scores))
            return 0, [token], self.label_number(state, target[1])
        if isinstance(target, dict):
            row, tokens = tokens_at(target, state)
            label = target.get("label")
            best = int(softmax(state.outputs[row]["logits"])[tokens].mean(axis=0).argmax())
            return row, tokens, best if label is None else self.label_number(state, label)
        raise BadRequest(
            'target must be [token, class], {"token": …, "label": …} or {"start": …, "end": …}.'
        )

    def _surest(self, state: RequestState) -> tuple[int, int]:
        """Return the window and the token whose label is surest.

        It is a token that is ignored only if all are.
        """
        ignored = state.input.parameters.ignore_labels
        labels = self.task.labels_of(state.input.parameters.adapter_id)
        outside = np.array([label in ignored for label in labels])
        found = []
        for row, outputs in zip(state.rows, state.outputs, strict=True):
            scores = softmax(outputs["logits"])
            special = np.array(row.encoding.special_tokens_mask, dtype=bool)
            best = np.where(outside[scores.argmax(axis=-1)], 0.0, scores.max(axis=-1))
            found.append(np.where(special, -1.0, best))
        row_number = max(range(len(found)), key=lambda number: found[number].max())
        return row_number, int(found[row_number].argmax())


class SpanTarget(Place):
    """The span and the label that are explained; `index` is the number of the label."""

    index: int


class SpanExplanation(Explanation):
    """Why a span got a label; `prediction` is the surest entity, null where there is none."""

    prediction: Place | None
    target: SpanTarget


@dataclass(frozen=True)
class ScoredPlace:
    """A logit of a span: its row, its place in the outputs of the row, and its value."""

    row: int
    place: tuple[int, ...]
    logit: float


class LabelledSpanTarget(TextExplanationTarget[zero_shot_token_classification.Task]):
    """Explains the logit of one label of one span."""

    results = SpanExplanation
    example_target = 0

    def select(self, state: RequestState) -> list[AttributionTarget]:
        found = self._place(state, self._target(state))
        row = state.rows[found.row]
        word, *inside = found.place
        slot = row.features[WORDS].index(word + 1)
        segments = self.segments(state, found.row)
        return [AttributionTarget(row, segments, OUTPUT, (slot, *inside), found.logit)]

    def describe(self, state: RequestState, selected: AttributionTarget) -> dict[str, Any]:
        item: ExtractionInput = state.input
        best, target = self._surest(state), self._target(state)
        return {
            "prediction": best and self._named(item, best),
            "target": {**self._named(item, target), "index": target.label},
        }

    def _named(self, item: ExtractionInput, span: WordSpan) -> Place:
        found = self.task.entity(item, span)
        return {
            "label": found["entity_group"],
            "score": found["score"],
            "start": found["start"],
            "end": found["end"],
        }

    def _found(self, state: RequestState) -> list[WordSpan]:
        return self.task.spans(state.input, state.rows, state.outputs)

    def _surest(self, state: RequestState) -> WordSpan | None:
        return max(self._found(state), key=lambda span: span.score, default=None)

    def _target(self, state: RequestState) -> WordSpan:
        target = state.settings.target
        if target is None:
            return self._surest(state) or self._best_of_all(state)
        if isinstance(target, dict):
            return self._named_span(state, target)
        found = self._found(state)
        if not found:
            raise BadRequest(
                "target is a number, and the answer has no entity; send characters"
                ' {"start": …, "end": …, "label": …}, or a lower threshold.'
            )
        return found[as_integer(target, "target", len(found))]

    def _named_span(self, state: RequestState, target: Mapping[str, Any]) -> WordSpan:
        require_keys(target, "start", "end")
        item: ExtractionInput = state.input
        length = len(item.text) + 1
        start, end = (
            as_integer(target[key], f"target's {key}", length) for key in ("start", "end")
        )
        words = [
            number
            for number, word in enumerate(item.words)
            if word.start < end and word.end > start
        ]
        if not words:
            raise BadRequest(f"target's characters {start} to {end} hold no word of the text.")
        label = target.get("label")
        labels = range(len(item.labels))
        chosen = labels if label is None else [candidate_number(label, item.labels)]
        spans = [WordSpan(words[0], words[-1], each, 0.0) for each in chosen]
        return max((self._scored(state, span) for span in spans), key=lambda span: span.score)

    def _scored(self, state: RequestState, span: WordSpan) -> WordSpan:
        score = float(sigmoid(np.array(self._place(state, span).logit, dtype=np.float32)))
        return WordSpan(span.first, span.last, span.label, score)

    def _best_of_all(self, state: RequestState) -> WordSpan:
        """Return the best span of all, whatever the threshold."""
        row, outputs = state.rows[0], state.outputs[0][OUTPUT]
        # A span of one word is scored by both kinds of models.
        of_words = outputs.min(-1) if self.task.reads_words else outputs[:, 0]
        # A full stop that only the model reads is no word of the text.
        words = state.input.words[row.first : row.first + len(of_words)]
        is_read = np.array([each.end > each.start for each in words])
        of_words = np.where(is_read[:, None], of_words, -np.inf)
        if not np.isfinite(of_words.max(initial=-np.inf)):
            raise BadRequest("The text holds no word with a score; send another text.")
        word, label = np.unravel_index(int(of_words.argmax()), of_words.shape)
        first = row.first + int(word)
        return self._scored(state, WordSpan(first, first, int(label), 0.0))

    def _place(self, state: RequestState, span: WordSpan) -> ScoredPlace:
        """Return the logit of a span that decides its score, in the window that is surest of it.

        Raises:
            BadRequest: no window has all of it, or the model scores no spans of its width.
        """
        places = [
            each
            for number, row in enumerate(state.rows)
            if row.first <= span.first and span.last <= row.last
            for each in self._logits(number, state.outputs[number][OUTPUT], span, row.first)
            # A word without tokens is in no span.
            if np.isfinite(each.logit)
        ]
        if not places:
            count = span.last - span.first + 1
            raise BadRequest(
                f"target has {count} words, which this model does not score as one span; send"
                f" {self.task.checkpoint.head.max_width} at most."
            )
        return max(places, key=lambda place: place.logit)

    def _logits(
        self, row: int, outputs: Any, span: WordSpan, first_word: int
    ) -> Iterator[ScoredPlace]:
        first, last = span.first - first_word, span.last - first_word
        if not self.task.reads_words:
            width = last - first
            if width < outputs.shape[1]:
                place = (first, width, span.label)
                yield ScoredPlace(row, place, float(outputs[place]))
            return
        read = [(first, span.label, FIRST), (last, span.label, LAST)]
        read += [(word, span.label, INSIDE) for word in range(first, last + 1)]
        place = min(read, key=lambda each: float(outputs[each]))
        yield ScoredPlace(row, place, float(outputs[place]))
