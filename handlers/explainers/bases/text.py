"""Segments of a row that an explanation refers to: tokens or words, with character offsets."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from tokenizers import Encoding
from typing_extensions import TypedDict

from ...batching.padding import Padding, Tensors, group_by_length, pad, token_columns
from ...batching.tokenization import Window
from ...batching.words import WordTokens, WordWindow
from ...errors import BadRequest, Unprocessable
from ...model import Model
from ...process.deadline import Deadline
from ...tasks import multimodal_embedding
from ...tasks.base import Label
from ...tasks.bases.text import TextTask
from ...types.parameters import Granularity, TextExplanationParameters
from ...types.request import RequestState
from ..base import (
    AnyTarget,
    Attribution,
    AttributionBatch,
    AttributionTarget,
    ExplainedModel,
    Values,
)
from ..page import View, target_view
from ..targets.base import BaseExplanationTarget, as_integer, require_keys


@dataclass(frozen=True)
class Segment:
    """Consecutive tokens of a row.

    Attributes:
        text: the text of the segment, or the token if it has none.
        start: start offset in characters of the text.
        end: end offset in characters.
        sequence: 0 for the first text of a pair, 1 for the second, None for special tokens.
    """

    text: str
    start: int
    end: int
    tokens: tuple[int, ...]
    sequence: int | None

    @property
    def special(self) -> bool:
        """Whether it is a special token such as [CLS], which is never replaced."""
        return self.sequence is None


def segment_tokens(
    row: Window | WordWindow, texts: Sequence[str], granularity: Granularity
) -> list[Segment]:
    """Return the segments of a row.

    Args:
        texts: the text, or both texts of a pair.
    """
    encoding = row.encoding
    indices = range(len(encoding.tokens))
    if granularity == "token":
        return [_segment(encoding, texts, [index]) for index in indices]
    words = groupby(indices, key=lambda index: _word_id(encoding, index))
    return [_segment(encoding, texts, list(tokens)) for _, tokens in words]


def _word_id(encoding: Encoding | WordTokens, index: int) -> tuple[int, ...]:
    word, sequence = encoding.word_ids[index], encoding.sequence_ids[index]
    return (index,) if word is None or sequence is None else (sequence, word)


def _segment(encoding: Encoding | WordTokens, texts: Sequence[str], tokens: list[int]) -> Segment:
    sequence = encoding.sequence_ids[tokens[0]]
    start, end = encoding.offsets[tokens[0]][0], encoding.offsets[tokens[-1]][1]
    if encoding.special_tokens_mask[tokens[0]]:
        sequence = None
    text = texts[sequence][start:end] if sequence is not None else ""
    # Byte-level tokenizers include the space before a word in its offsets.
    start += len(text) - len(text.lstrip())
    text = text.strip()
    token = encoding.tokens[tokens[0]]
    readable = len(tokens) == 1 and token.isascii()
    return Segment(token if readable or not text else text, start, end, tuple(tokens), sequence)


NOT_FOUND = (
    "This model does not look up the vectors of its tokens in a way that gradients are known for;"
    " use method feature_ablation."
)


class TokenVectors(torch.nn.Module):
    """Looks up the vectors of token ids.

    It is a module because Captum explains the outputs of one.

    Args:
        layers: the layers that the model looks up vectors in, with the same weights; each lookup is
            one of the explained ids.
        has_own_decoder: whether a decoder reads other ids, with the same layer or another.
    """

    def __init__(self, layers: Sequence[torch.nn.Module], *, has_own_decoder: bool = False) -> None:
        super().__init__()
        self.layers = layers[:1] if has_own_decoder else layers
        self._has_own_decoder = has_own_decoder

    @property
    def dtype(self) -> torch.dtype:
        """The data type of the vectors."""
        return next(self.layers[0].parameters()).dtype

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the vectors of ids, which have gradients. Shape: (rows, tokens, size)."""
        layer = self.layers[0]
        with torch.no_grad():
            vectors = _tensor(layer(ids.to(next(layer.parameters()).device)))
        return vectors.detach().requires_grad_(torch.is_grad_enabled())

    @contextmanager
    def replaced(self, ids: torch.Tensor, vectors: torch.Tensor) -> Iterator[None]:
        """Have the model get vectors where it looks up ids within the block.

        Args:
            ids: the ids. Shape: (rows, tokens).
            vectors: their vectors. Shape: (rows, tokens, size).

        Raises:
            Unprocessable: the model does not look up these ids, or looks up others, too.
        """
        found = []

        def replace(_layer: torch.nn.Module, inputs: Any, options: Any, output: Any) -> Any:
            looked_up = next(iter((*inputs, *options.values())))
            own = _tensor(output)
            placed = self._placed(ids.to(own.device), looked_up, vectors.to(own), own)
            if placed is None:
                if self._has_own_decoder:
                    return output
                raise Unprocessable(NOT_FOUND)
            found.append(looked_up)
            # A copy, because some models change it in place.
            placed = placed.clone()
            return (placed, *output[1:]) if isinstance(output, tuple) else placed

        with ExitStack() as hooks:
            for layer in self.layers:
                handle = layer.register_forward_hook(replace, with_kwargs=True)
                hooks.callback(handle.remove)
            yield
        if not found:
            raise Unprocessable(NOT_FOUND)

    def _placed(
        self, ids: torch.Tensor, looked_up: torch.Tensor, vectors: torch.Tensor, own: torch.Tensor
    ) -> torch.Tensor | None:
        """Return vectors as the model looked them up; None if it looked up other ids.

        Args:
            looked_up: those that the model has looked up.
            vectors: the vectors of the explained ids.
            own: those that the model has found.
        """
        if torch.equal(looked_up, ids):
            return vectors
        if torch.equal(looked_up, ids.T):
            return vectors.transpose(0, 1)
        if looked_up.ndim != ids.ndim or len(looked_up) != len(ids):
            return None
        width = ids.shape[1]
        if torch.equal(looked_up[:, :width], ids):
            return torch.cat([vectors, own[:, width:]], 1)
        is_shifted = looked_up.shape == ids.shape and torch.equal(looked_up[:, 1:], ids[:, :-1])
        if is_shifted and not self._has_own_decoder:
            return torch.cat([own[:, :1], vectors[:, :-1]], 1)
        return None


def _tensor(output: Any) -> torch.Tensor:
    """Return the vectors among the outputs of a layer; I-BERT's layer returns their scale, too."""
    vectors: torch.Tensor = output[0] if isinstance(output, tuple) else output
    return vectors


# Each row is computed many times, so a group has less padding than in a prediction.
MAX_PADDING_SHARE = 0.25


class TokenBatch(AttributionBatch):
    """A padded batch of token ids. Shape of inputs and baseline: (rows, width)."""

    input_name = "input_ids"
    model: ExplainedTextModel
    targets: Sequence[AttributionTarget]

    def collate(self) -> Tensors:
        return pad([target.row for target in self.targets], self.model.padding)

    def baseline_inputs(self) -> torch.Tensor:
        replaced = self._segment_indices() >= 0
        return torch.where(replaced, self.model.baseline_token_id, self.inputs)

    @property
    def _vectors(self) -> TokenVectors:
        if self.model.vectors is None:
            raise NotImplementedError
        return self.model.vectors

    @property
    def max_rows(self) -> int:
        return max(1, self.model.budget // self.inputs.shape[1])

    def feature_mask(self) -> torch.Tensor:
        """Return the segment index of each token. Shape: (rows, width).

        Special tokens and padding, which are equal in the baseline, count as the first segment.
        """
        return self._segment_indices().clamp(min=0)

    @torch.no_grad()
    def vectors(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the embeddings of tokens. Shape: (rows, width, size)."""
        found: torch.Tensor = self._vectors(inputs)
        return found

    def score_vectors(
        self, vectors: torch.Tensor, inputs: torch.Tensor, *extra: torch.Tensor
    ) -> torch.Tensor:
        with self._vectors.replaced(inputs, vectors):
            return self.score(inputs, *extra)

    def sum_vectors(self, values: torch.Tensor, rows: Sequence[int]) -> torch.Tensor:
        return values.sum(-1)

    @property
    def dtype(self) -> torch.dtype:
        return self._vectors.dtype

    def segment_values(self, row: int, values: Values, *, per_segment: bool) -> Values:
        target = self.targets[row]
        tokens = values[self._columns(target)]
        join = _first_token if per_segment else _sum
        return np.array([join(tokens, segment) for segment in target.segments])

    def _segment_indices(self) -> torch.Tensor:
        """Return the index of the replaceable segment of each token; -1 for other tokens."""
        indices = torch.full_like(self.inputs, -1)
        for row, target in enumerate(self.targets):
            first = self._columns(target).start
            replaceable = [segment for segment in target.segments if not segment.special]
            for index, segment in enumerate(replaceable):
                indices[row, [first + token for token in segment.tokens]] = index
        return indices

    def _columns(self, target: AttributionTarget) -> slice:
        return token_columns(len(target.row), self.inputs.shape[1], self.model.padding.side)


@dataclass(frozen=True)
class ExplainedTextModel(ExplainedModel):
    """A model whose rows are tokens.

    Attributes:
        vectors: the vectors of its tokens; None if the format has no gradients.
        baseline_token_id: the id that replaces tokens in the baseline.
        padded_limit: the longest row that may share a forward with shorter ones.
    """

    vectors: TokenVectors | None
    padding: Padding
    baseline_token_id: int
    padded_limit: float = math.inf

    batch_type: ClassVar[type[AttributionBatch]] = TokenBatch
    rows_name: ClassVar[str] = "texts"
    cheaper: ClassVar[str] = (
        "lower n_steps or n_samples, use granularity word or input_x_gradient, or send a shorter"
        " text"
    )

    def group(self, targets: Sequence[AnyTarget]) -> Iterator[list[int]]:
        lengths = [len(target.row) for target in targets]
        return group_by_length(lengths, self.budget, MAX_PADDING_SHARE, self.padded_limit)


def _sum(row: Values, segment: Segment) -> float:
    return float(row[list(segment.tokens)].sum())


def _first_token(row: Values, segment: Segment) -> float:
    return 0.0 if segment.special else float(row[segment.tokens[0]])


TaskT = TypeVar("TaskT", bound=TextTask[Any, Any] | multimodal_embedding.Task)


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


class Sums(Attributions):
    """Attributions, and whether their sum is right within 5%."""

    converged: bool


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

    def texts(self, state: RequestState, number: int) -> Sequence[str]:
        """Return the text of a row, or both texts of a pair."""
        return [state.input.text]

    def segments(self, state: RequestState, number: int = 0) -> list[Segment]:
        """Return the tokens or words of a row."""
        texts = self.texts(state, number)
        return segment_tokens(state.rows[number], texts, state.settings.granularity)

    def named(self, state: RequestState, number: int, scores: Any) -> dict[str, Any]:
        """Return the label of a class, and its score."""
        labels = self.task.labels_of(self.task.adapter_of(state.input))
        return {"label": labels[number], "score": float(scores[number])}

    def describe(self, state: RequestState, selected: AttributionTarget) -> dict[str, Any]:
        """Return the `prediction` and the `target` of an explanation, and keys of the mode."""
        raise NotImplementedError

    def to_response(
        self,
        state: RequestState,
        selected: Sequence[AttributionTarget],
        attributions: Sequence[Attribution],
    ) -> dict[str, Any]:
        found = mean(attributions)
        return {**explanation_fields(selected[0], found), **self.describe(state, selected[0])}

    @staticmethod
    def views(explanation: Mapping[str, Any]) -> Iterator[View]:
        return target_view(explanation)

    def explained(self, model: Model, deadline: Deadline) -> ExplainedTextModel:
        # A model that is loaded for explanations has embeddings only now.
        layers = model.embeddings
        padding = self.task.padding
        if self.task.description.outputs.per_token:
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


def tokens_at(target: Mapping[str, Any], state: RequestState) -> tuple[int, list[int]]:
    """Return the row and the token, or the tokens of the characters, that a target names.

    Of several windows of the text, it is the first one with most of the tokens.

    Args:
        target: `{"token": 1}`, a token of the first row, or `{"start": 0, "end": 6}`.
        state: the request, with one text.

    Raises:
        BadRequest: the text has no such token or characters.
    """
    offsets = [row.encoding.offsets for row in state.rows]
    if "token" in target and target.keys() & {"start", "end"}:
        raise BadRequest("target has a token and characters; send one of them.")
    if "token" in target:
        return 0, [as_integer(target["token"], "the token in target", len(offsets[0]))]
    require_keys(target, "start", "end")
    length = len(state.input.text) + 1
    start, end = (as_integer(target[key], f"target's {key}", length) for key in ("start", "end"))
    found = [
        [number for number, (first, last) in enumerate(each) if first < end and last > start]
        for each in offsets
    ]
    row = max(range(len(found)), key=lambda number: len(found[number]))
    if not found[row] or end <= start:
        raise BadRequest(f"target's characters {start} to {end} hold no token of the text.")
    return row, found[row]


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


def mean(attributions: Sequence[Attribution]) -> Attribution:
    """Return the attribution of the mean of several F over one row: all methods here are linear."""
    return Attribution(
        np.mean([found.values for found in attributions], axis=0),
        float(np.mean([found.output for found in attributions])),
        float(np.mean([found.baseline for found in attributions])),
    )


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
