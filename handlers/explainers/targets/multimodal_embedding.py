"""Which words of a text, or patches of an image, drive its similarity to a text or an image.

`target` is the text or the image that the input is compared with, in the form of inputs; by default
the length of the vector itself is explained.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from typing_extensions import TypeAliasType

from ...batching.padding import token_columns
from ...batching.tokenization import has_offsets
from ...checkpoints.dual_encoder import OUTPUT
from ...errors import BadRequest, RequestError, Unprocessable
from ...model import Model
from ...process.deadline import Deadline
from ...tasks.base import Label
from ...tasks.multimodal_embedding import ImageInput, Task, TextInput, TextRow
from ...types.parameters import MultimodalExplanationParameters
from ...types.request import Request, RequestState
from .. import methods_for
from ..base import AttributionTarget, Comparison
from ..bases.image import (
    PIXELS,
    ImageExplanation,
    ImageExplanationTarget,
    ImageTarget,
    PixelBatch,
    image_view,
)
from ..bases.text import ExplainedTextModel, Segment, TextExplanationTarget
from ..page import View, target_view
from .sentence_vectors import SimilarityExplanation, compared


class ImageSimilarityExplanation(ImageExplanation):
    """Why an image is similar to a text or an image; `score` of the target is the cosine.

    Without another one, `score` is the length of the image's vector.
    """

    prediction: Label
    target: Label


MultimodalExplanation = TypeAliasType(
    "MultimodalExplanation", SimilarityExplanation | ImageSimilarityExplanation
)


class PatchesTarget(ImageExplanationTarget[Task]):
    """Explains the cosine of an image's vector and another one, or else the vector's length."""

    results = ImageSimilarityExplanation
    example_target = "a red square"

    def choose(self, state: RequestState) -> ImageTarget:
        if state.rows[0].features[PIXELS].ndim != 3:
            raise Unprocessable(
                "This model reads images of any proportions as a list of patches, which are not"
                " explained; send the text as inputs and the image as target."
            )
        return self.similarity_target(state, OUTPUT, *_compared(self.task, state))

    def describe(self, state: RequestState, selected: ImageTarget) -> dict[str, Any]:
        return _described(state, selected.score)


class ExplanationTarget(TextExplanationTarget[Task]):
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
        return [AttributionTarget(row, self.segments(state), OUTPUT, (), score, comparison)]

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


def _compared(task: Task, state: RequestState) -> tuple[Comparison, float]:
    """Return what explains the cosine of both vectors of a request, or the length of one."""
    return compared(*(task.vector(each, state.input.parameters) for each in state.outputs))


def _described(state: RequestState, score: float | None) -> dict[str, Any]:
    other = state.input.other or state.input
    label = str(other.text) if isinstance(other, TextInput) else "image"
    return {
        "prediction": {"label": "similarity", "score": score},
        "target": {"label": label, "score": score},
    }
