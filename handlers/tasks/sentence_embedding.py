"""A text to one vector, as sentence-transformers computes it.

{"inputs": "A fine film."}                                      -> [0.013, -0.082, …]
{"inputs": "A fine film.", "parameters": {"dimensions": 256}}   -> its first 256 numbers

The engine also takes token ids, special ones included, which wire formats of embeddings have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import PositiveInt

from ..batching.rows import Outputs, Row
from ..checkpoints.sentence_transformers import OUTPUT
from ..errors import BadRequest, RequestError
from ..types.embeddings import Precision, as_list, in_base64, quantized
from ..types.model_info import Exports, ModelOutputs, TaskDescription, Wire
from ..types.parameters import ANY, Parameters, PipelineNames
from ..types.request import Request, TokenIds
from .bases.embedding import EmbeddedText, EmbeddingTask, PromptParameters


class EmbeddingParameters(PromptParameters):
    """Parameters of `SentenceTransformer.encode`, and of embedding servers."""

    pipeline_names: ClassVar[PipelineNames] = PipelineNames(
        ignored={"batch_size": ANY, "padding": ANY, "show_progress_bar": ANY}
    )

    normalize: bool | None = None
    """Gives vectors a length of 1. Without it, as the modules of the checkpoint say."""
    dimensions: PositiveInt | None = None
    """Number of dimensions to keep, for models that were trained so (Matryoshka)."""
    precision: Precision = "float32"
    """Type of the numbers. `int8` and `uint8` scale each vector by its largest number, `binary` and
    `ubinary` have one bit for each dimension, 8 in a number."""
    encoding_format: Literal["float", "base64"] = "float"
    """A list of numbers, or the bytes of the array (little-endian) in base64."""


@dataclass(frozen=True)
class EmbeddingInput:
    """A text to embed.

    Attributes:
        other: the text that an explanation compares it with.
    """

    text: EmbeddedText
    parameters: EmbeddingParameters
    other: EmbeddedText | None = None


class Task(EmbeddingTask[EmbeddingInput]):
    """Embeddings of texts; answers as sentence-transformers does."""

    parameters: ClassVar[type[Parameters]] = EmbeddingParameters
    description = TaskDescription(
        Wire(
            inputs=str,
            results=list[float] | str,
            example={"inputs": "A fine film with a great cast."},
        ),
        outputs=ModelOutputs((OUTPUT,), are_vectors=True),
        exports=Exports(fastest_formats={"cpu": "openvino"}),
        service="embed",
    )

    def parse(self, request: Request) -> EmbeddingInput:
        parameters: EmbeddingParameters = self.read_parameters(request.parameters)
        self._check_dimensions(parameters.dimensions)
        text = self.read_text(_as_token_ids(request.inputs), "inputs", parameters)
        return EmbeddingInput(text, parameters)

    def encode(self, inputs: Sequence[EmbeddingInput]) -> list[list[Row] | RequestError]:
        return self.encode_embedded(
            [[item.text, *([item.other] if item.other else [])] for item in inputs]
        )

    def decode(self, item: EmbeddingInput, rows: Sequence[Row], outputs: Sequence[Outputs]) -> Any:
        parameters = item.parameters
        normalize = parameters.normalize
        vector = self.vector(
            outputs[0],
            normalize=self.modules.normalizes if normalize is None else normalize,
            dimensions=parameters.dimensions,
        )
        numbers = quantized(vector, parameters.precision)
        return in_base64(numbers) if parameters.encoding_format == "base64" else as_list(numbers)

    def _check_dimensions(self, dimensions: int | None) -> None:
        if dimensions is not None and dimensions > self.modules.dimension:
            raise BadRequest(
                f"parameters: dimensions is {dimensions:,}, and the vectors of this model have"
                f" {self.modules.dimension:,}; send fewer."
            )


def _as_token_ids(inputs: Any) -> Any:
    """Return a list of numbers as token ids, other inputs as they are."""
    if isinstance(inputs, list) and inputs and all(type(each) is int for each in inputs):
        return TokenIds(tuple(inputs))
    return inputs
