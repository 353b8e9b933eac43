"""Which words of texts, or patches of an image, drive vectors and their similarity.

`target` is, for

- an embedding: the text, or the image, that it is compared with, in the form of inputs; by default
  the length of the vector itself is explained.
- a similarity: the number of a sentence, by default of the most similar one.
- the vectors of tokens, some of which are explained together by their mean: `{"token": 1}` or
  characters `{"start": 0, "end": 6}`; by default all. What is explained of their mean is its
  length, or the number of a `dimension` of it. `[token, dimension]` and `dimension` alone are short
  for objects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from typing_extensions import TypeAliasType

from ...batching.padding import token_columns
from ...batching.tokenization import Window, has_offsets
from ...checkpoints import dual_encoder
from ...checkpoints.sentence_transformers import OUTPUT
from ...errors import BadRequest, RequestError, Unprocessable
from ...model import Model
from ...process.deadline import Deadline
from ...tasks import (
    feature_extraction,
    multimodal_embedding,
    sentence_embedding,
    sentence_similarity,
)
from ...tasks.base import Label
from ...tasks.multimodal_embedding import ImageInput, TextInput, TextRow
from ...tasks.sentence_embedding import EmbeddingInput
from ...types.parameters import MultimodalExplanationParameters, TextExplanationParameters
from ...types.request import Request, RequestState
from .. import methods_for
from ..base import Attribution, AttributionTarget, Comparison, TokensComparison, unit_vector
from ..bases.image import (
    PIXELS,
    ImageExplanation,
    ImageExplanationTarget,
    ImageTarget,
    PixelBatch,
    image_view,
)
from ..bases.text import (
    ExplainedTextModel,
    Explanation,
    Place,
    Segment,
    Segments,
    Sums,
    TextExplanationTarget,
    attribution_sums,
    normalized,
    segment_texts,
    tokens_at,
)
from ..page import View, target_view
from .base import as_integer

Vector = npt.NDArray[np.float32]


class SimilarityExplanation(Explanation):
    """Why two texts are similar; `label` of the target is the other text, `score` the cosine.

    Without another text, `score` is the length of the text's vector.
    """

    prediction: Label
    target: Label


class EmbeddingTarget(TextExplanationTarget[sentence_embedding.Task]):
    """Explains the cosine of a text's vector and another one, or else the vector's length."""

    results = SimilarityExplanation
    example_target = "The actors were brilliant."

    def parse(self, request: Request, settings: TextExplanationParameters) -> EmbeddingInput:
        item = self.task.parse(request)
        if item.starts:
            raise BadRequest("Chunks are not explained; send a text.")
        if settings.target is None:
            return item
        other = self.task.read_text(settings.target, "target", item.parameters)
        return replace(item, other=other)

    def texts(self, state: RequestState, number: int) -> list[str]:
        return [str(state.input.text.text)]

    def select(self, state: RequestState) -> list[AttributionTarget]:
        row, size = state.rows[0], state.input.parameters.dimensions
        if not isinstance(row, Window):
            raise BadRequest("Token ids are not explained; send a text.")
        vector, *others = (
            self.task.vector(each, normalize=False, dimensions=size) for each in state.outputs
        )
        comparison, score = compared(vector, *others)
        return [AttributionTarget(row, self.segments(state), OUTPUT, (), score, comparison)]

    def describe(self, state: RequestState, selected: AttributionTarget) -> dict[str, Any]:
        score = selected.score
        other = state.input.other or state.input.text
        return {
            "prediction": {"label": "similarity", "score": score},
            "target": {"label": str(other.text), "score": score},
        }


class SentenceTarget(Label):
    """A sentence of the request, by its number; its score is the similarity."""

    index: int


class SentencesExplanation(Segments):
    """Which words of two sentences, `texts`, drive their similarity.

    Words of both are in one list, and `sequence_ids` has 0 for the source and 1 for the other.
    """

    texts: list[str]
    importances: list[float]
    delta: float
    source: Sums
    sentence: Sums
    prediction: SentenceTarget
    target: SentenceTarget


class SimilarityTarget(TextExplanationTarget[sentence_similarity.Task]):
    """Explains the similarity of the source and one sentence, from both sides.

    Each side is explained with the vector of the other as it is.
    """

    results = SentencesExplanation
    example_target = 0

    def texts(self, state: RequestState, number: int) -> list[str]:
        return [str(state.input.texts[number].text)]

    def select(self, state: RequestState) -> list[AttributionTarget]:
        number = self._number(state)
        score = self.task.similarities(state.outputs)[number]
        vectors = self.task.vectors(state.outputs)
        sides = (0, number + 1)
        return [
            self._side(state, place, Comparison(vectors[other], **self._options), score)
            for place, other in (sides, sides[::-1])
        ]

    def to_response(
        self,
        state: RequestState,
        selected: Sequence[AttributionTarget],
        attributions: Sequence[Attribution],
    ) -> dict[str, Any]:
        source, sentence = attributions
        number, scores = self._number(state), self.task.similarities(state.outputs)
        words = [segment_texts(each) for each in _numbered(selected)]
        return {
            **{name: [*words[0][name], *words[1][name]] for name in words[0]},
            "texts": [str(state.input.texts[place].text) for place in (0, number + 1)],
            "importances": [*normalized(source), *normalized(sentence)],
            "delta": max(source.delta, sentence.delta, key=abs),
            "source": attribution_sums(source),
            "sentence": attribution_sums(sentence),
            "converged": source.converged and sentence.converged,
            "prediction": _named(state, int(np.argmax(scores)), scores),
            "target": _named(state, number, scores),
        }

    @property
    def _options(self) -> dict[str, Any]:
        modules = self.task.modules
        return {"similarity": self.task.similarity, "normalizes": modules.normalizes}

    def _side(
        self, state: RequestState, place: int, comparison: Comparison, score: float
    ) -> AttributionTarget:
        segments = self.segments(state, place)
        return AttributionTarget(state.rows[place], segments, OUTPUT, (), score, comparison)

    def _number(self, state: RequestState) -> int:
        target = state.settings.target
        if target is None:
            return int(np.argmax(self.task.similarities(state.outputs)))
        return as_integer(target, "target", len(state.outputs) - 1)


def compared(vector: Vector, other: Vector | None = None) -> tuple[Comparison, float]:
    """Return what explains the cosine of two vectors, or the length of one, and its value."""
    if other is not None:
        return Comparison(torch.from_numpy(other)), cosine(vector, other)
    # The cosine of a vector with itself is at its maximum, where its gradient is zero.
    return Comparison(torch.from_numpy(unit_vector(vector)), "dot"), float(np.linalg.norm(vector))


def cosine(first: Vector, second: Vector) -> float:
    """Return the cosine of two vectors."""
    lengths = float(np.linalg.norm(first)) * float(np.linalg.norm(second))
    return float(np.dot(first, second)) / max(lengths, 1e-12)


def _numbered(selected: Sequence[AttributionTarget]) -> list[AttributionTarget]:
    """Return the targets with the number of their side in their segments."""
    return [
        replace(
            each,
            segments=[
                segment if segment.special else replace(segment, sequence=side)
                for segment in each.segments
            ],
        )
        for side, each in enumerate(selected)
    ]


def _named(state: RequestState, number: int, scores: Sequence[float]) -> SentenceTarget:
    text = str(state.input.texts[number + 1].text)
    return {"label": text, "score": scores[number], "index": number}


class ImageSimilarityExplanation(ImageExplanation):
    """Why an image is similar to a text or an image; `score` of the target is the cosine.

    Without another one, `score` is the length of the image's vector.
    """

    prediction: Label
    target: Label


MultimodalExplanation = TypeAliasType(
    "MultimodalExplanation", SimilarityExplanation | ImageSimilarityExplanation
)


class PatchesTarget(ImageExplanationTarget[multimodal_embedding.Task]):
    """Explains the cosine of an image's vector and another one, or else the vector's length."""

    results = ImageSimilarityExplanation
    example_target = "a red square"

    def choose(self, state: RequestState) -> ImageTarget:
        if state.rows[0].features[PIXELS].ndim != 3:
            raise Unprocessable(
                "This model reads images of any proportions as a list of patches, which are not"
                " explained; send the text as inputs and the image as target."
            )
        return self.similarity_target(state, dual_encoder.OUTPUT, *_compared(self.task, state))

    def describe(self, state: RequestState, selected: ImageTarget) -> dict[str, Any]:
        return _described(state, selected.score)


class MultimodalTarget(TextExplanationTarget[multimodal_embedding.Task]):
    """Explains the cosine of an input's vector and another one, or else the vector's length.

    Texts are explained by their tokens, and images by their patches.
    """

    results = MultimodalExplanation
    parameters = MultimodalExplanationParameters
    example_target = "a red circle"
    legacy_keys = ("importances", "delta")

    @classmethod
    def parameter_schemas(cls, *, gradients: bool) -> dict[str, Any]:
        schemas = super().parameter_schemas(gradients=gradients)
        of_images = methods_for(PixelBatch, gradients=gradients)
        methods = sorted({*filter(None, schemas["method"]["enum"]), *of_images})
        # The default is another one for images than for texts.
        return {**schemas, "method": {"enum": [*methods, None], "default": None}}

    def parse(
        self, request: Request, settings: MultimodalExplanationParameters
    ) -> TextInput | ImageInput:
        item: TextInput | ImageInput = self.task.parse(request)
        if settings.target is None:
            return item
        return replace(item, other=self.task.read_item(settings.target, "target", item.parameters))

    def texts(self, state: RequestState, number: int) -> list[str]:
        return [state.input.text]

    def segments(self, state: RequestState, number: int = 0) -> list[Segment]:
        row: TextRow = state.rows[number]
        # SigLIP reads rows of a fixed length, whose padding is no part of the encoding.
        first = token_columns(len(row.encoding), len(row), self.task.padding.side).start
        return [
            replace(segment, tokens=tuple(first + token for token in segment.tokens))
            for segment in super().segments(state, number)
        ]

    def select(self, state: RequestState) -> list[AttributionTarget]:
        row, (comparison, score) = state.rows[0], _compared(self.task, state)
        if not has_offsets(row.encoding):
            raise BadRequest("Token ids are not explained; send a text.")
        return [
            AttributionTarget(row, self.segments(state), dual_encoder.OUTPUT, (), score, comparison)
        ]

    def describe(self, state: RequestState, selected: AttributionTarget) -> dict[str, Any]:
        return _described(state, selected.score)

    @staticmethod
    def views(explanation: Mapping[str, Any]) -> Iterator[View]:
        if "heat_map" in explanation:
            yield image_view(explanation)
        else:
            yield from target_view(explanation)

    def explained(self, model: Model, deadline: Deadline) -> ExplainedTextModel:
        explained = super().explained(model, deadline)
        return replace(explained, budget=explained.budget // self.task.token_cost)

    def explain(
        self, states: Sequence[RequestState], model: Model, deadline: Deadline
    ) -> list[dict[str, Any] | RequestError]:
        images = [state for state in states if isinstance(state.input, ImageInput)]
        texts = [state for state in states if isinstance(state.input, TextInput)]
        # What texts leave of their share is for images.
        share = deadline.share(len(states) / len(texts)) if texts and images else deadline
        of_texts = super().explain(texts, model, share)
        of_images = PatchesTarget(self.task).explain(images, model, deadline)
        outcomes = dict(zip((*texts, *images), (*of_texts, *of_images), strict=True))
        return [outcomes[state] for state in states]


def _compared(task: multimodal_embedding.Task, state: RequestState) -> tuple[Comparison, float]:
    """Return what explains the cosine of both vectors of a request, or the length of one."""
    return compared(*(task.vector(each, state.input.parameters) for each in state.outputs))


def _described(state: RequestState, score: float | None) -> dict[str, Any]:
    other = state.input.other or state.input
    label = str(other.text) if isinstance(other, TextInput) else "image"
    return {
        "prediction": {"label": "similarity", "score": score},
        "target": {"label": label, "score": score},
    }


KEYS = frozenset({"token", "start", "end", "dimension"})


class VectorTarget(Place):
    """What is explained of the mean of the vectors of `tokens`: its length, or a dimension."""

    index: int | None
    tokens: list[int]


class VectorExplanation(Explanation):
    """Why the mean of tokens' vectors is long, or why one of its numbers is large."""

    prediction: Label
    target: VectorTarget


class TokenVectorTarget(TextExplanationTarget[feature_extraction.Task]):
    """Explains the length of a mean of tokens' vectors, in its own direction, or a dimension."""

    results = VectorExplanation
    example_target = (1, 0)

    def select(self, state: RequestState) -> list[AttributionTarget]:
        tokens, dimension = _selected(state)
        mean = _mean(state, tokens)
        direction = _direction(mean, dimension)
        comparison = TokensComparison(torch.from_numpy(direction), tokens=tokens)
        score = float(mean @ direction)
        return [
            AttributionTarget(
                state.rows[0],
                self.segments(state),
                feature_extraction.OUTPUT,
                (),
                score,
                comparison,
            )
        ]

    def describe(self, state: RequestState, selected: AttributionTarget) -> dict[str, Any]:
        tokens, dimension = _selected(state)
        length = float(np.linalg.norm(_mean(state, tokens)))
        return {
            "prediction": {"label": "length", "score": length},
            "target": {
                "label": "length" if dimension is None else f"dimension {dimension}",
                "score": selected.score,
                "index": dimension,
                "tokens": list(tokens),
                **_place(state, tokens),
            },
        }


def _selected(state: RequestState) -> tuple[range, int | None]:
    """Return the tokens and the dimension that the target of a state names."""
    target, (count, size) = (
        _as_object(state.settings.target),
        state.outputs[0][feature_extraction.OUTPUT].shape,
    )
    tokens, dimension = range(count), None
    if target.keys() & {"token", "start", "end"}:
        _, found = tokens_at(target, state)
        tokens = range(found[0], found[-1] + 1)
    if "dimension" in target:
        dimension = as_integer(target["dimension"], "the dimension in target", size)
    return tokens, dimension


def _as_object(target: Any) -> Mapping[str, Any]:
    if target is None:
        return {}
    if isinstance(target, int):
        return {"dimension": target}
    if isinstance(target, (list, tuple)) and len(target) == 2:
        return {"token": target[0], "dimension": target[1]}
    if isinstance(target, dict) and target and target.keys() <= KEYS:
        return target
    raise BadRequest(
        'target must be a dimension, [token, dimension], {"token": …} or {"start": …, "end": …},'
        ' both with or without "dimension".'
    )


def _place(state: RequestState, tokens: range) -> dict[str, int]:
    """Return the characters that tokens stand for; none if all of them are special."""
    encoding = state.rows[0].encoding
    special = encoding.special_tokens_mask
    offsets = [encoding.offsets[token] for token in tokens if not special[token]]
    return {
        "start": min((start for start, _ in offsets), default=0),
        "end": max((end for _, end in offsets), default=0),
    }


def _mean(state: RequestState, tokens: range) -> Vector:
    vectors = state.outputs[0][feature_extraction.OUTPUT][tokens.start : tokens.stop]
    mean: Vector = vectors.mean(axis=0, dtype=np.float32)
    return mean


def _direction(mean: Vector, dimension: int | None) -> Vector:
    """Return the direction along which a mean is explained: its own, or a dimension."""
    if dimension is None:
        return unit_vector(mean)
    direction = np.zeros_like(mean)
    direction[dimension] = 1
    return direction
