"""A text to one vector, as sentence-transformers computes it.

{"inputs": "A fine film."}                                      -> [0.013, -0.082, …]
{"inputs": "A fine film.", "parameters": {"dimensions": 256}}   -> its first 256 numbers

The engine also takes token ids, special ones included, which wire formats of embeddings have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ..batching.rows import Outputs, Row
from ..checkpoints.sentence_transformers import OUTPUT
from ..errors import RequestError
from ..types.model_info import Exports, ModelOutputs, TaskDescription, Wire
from ..types.parameters import ANY, Parameters, PipelineNames
from ..types.request import Request, as_token_ids
from .bases.embedding import EmbeddedText, EmbeddingTask, PromptParameters, VectorParameters


class EmbeddingParameters(VectorParameters, PromptParameters):
    """Parameters of `SentenceTransformer.encode`, and of embedding servers."""

    pipeline_names: ClassVar[PipelineNames] = PipelineNames(
        ignored={"batch_size": ANY, "padding": ANY, "show_progress_bar": ANY}
    )


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
        parameters.check_dimensions(self.modules.dimension)
        text = self.read_text(as_token_ids(request.inputs), "inputs", parameters)
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
        return parameters.result(vector)
