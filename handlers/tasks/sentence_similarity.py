"""A sentence and others, to the similarity of each of these.

{"inputs": {"source_sentence": "Nina sings.", "sentences": ["She sang.", "It rains."]}}
-> [0.61, 0.08]

The vectors are computed as in `sentence_embedding`, and each sentence is a row of the request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from typing_extensions import TypedDict

from ..batching.rows import Outputs, Row
from ..checkpoints.checkpoint import Checkpoint
from ..checkpoints.sentence_transformers import OUTPUT, SIMILARITIES
from ..config.handler_section import HandlerSection
from ..errors import RequestError
from ..types.model_info import Exports, ModelOutputs, TaskDescription, Wire
from ..types.parameters import ANY, Parameters, PipelineNames, check_list, check_object
from ..types.request import Request
from .bases.embedding import EmbeddedText, EmbeddingTask, PromptParameters

SOURCE, OTHERS = KEYS = ("source_sentence", "sentences")
FORM = f'{{"{SOURCE}": …, "{OTHERS}": […]}}'


class SimilarityParameters(PromptParameters):
    """Parameters of all sentences of a request."""

    pipeline_names: ClassVar[PipelineNames] = PipelineNames(
        ignored={"batch_size": ANY, "padding": ANY}
    )


class SourceSentences(TypedDict):
    """A sentence, and those that are compared with it."""

    source_sentence: str
    sentences: str | list[str]


@dataclass(frozen=True)
class SimilarityInput:
    """The source sentence, and the others behind it."""

    texts: Sequence[EmbeddedText]


class Task(EmbeddingTask[SimilarityInput]):
    """Similarities of sentences, by the function that the checkpoint names."""

    parameters: ClassVar[type[Parameters]] = SimilarityParameters
    description = TaskDescription(
        Wire(
            inputs=SourceSentences,
            results=list[float],
            example={"inputs": {SOURCE: "Nina sings in the bar.", OTHERS: "She sang in a pub."}},
            input_columns=(KEYS,),
        ),
        outputs=ModelOutputs((OUTPUT,), are_vectors=True),
        exports=Exports(fastest_formats={"cpu": "openvino"}),
        service="similarity",
    )

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        super().__init__(checkpoint, settings)
        self.similarity = self.modules.settings.similarity_fn_name or "cosine"

    @classmethod
    def example_inputs(cls, text: str) -> SourceSentences:
        words = text.split()[2:]  # two fewer, for the [CLS] and [SEP] of the second row
        middle = len(words) // 2
        return {"source_sentence": " ".join(words[:middle]), "sentences": " ".join(words[middle:])}

    def parse(self, request: Request) -> SimilarityInput:
        parameters: SimilarityParameters = self.read_parameters(request.parameters)
        inputs = check_object(request.inputs, FORM, KEYS)
        named = {SOURCE: inputs[SOURCE], **self._named(inputs[OTHERS])}
        return SimilarityInput(
            [self.read_text(text, name, parameters) for name, text in named.items()]
        )

    def encode(self, inputs: Sequence[SimilarityInput]) -> list[list[Row] | RequestError]:
        return self.encode_embedded([item.texts for item in inputs])

    def decode(
        self, item: SimilarityInput, rows: Sequence[Row], outputs: Sequence[Outputs]
    ) -> list[float]:
        return self.similarities(outputs)

    def similarities(self, outputs: Sequence[Outputs]) -> list[float]:
        """Return the similarity of each sentence to the first one."""
        source, *others = self.vectors(outputs)
        found: list[float] = SIMILARITIES[self.similarity](source, torch.stack(others)).tolist()
        return found

    def vectors(self, outputs: Sequence[Outputs]) -> list[torch.Tensor]:
        """Return the vector of each sentence, with a length of 1 where the checkpoint says so."""
        normalize = self.modules.normalizes
        return [torch.from_numpy(self.vector(each, normalize=normalize)) for each in outputs]

    def _named(self, sentences: Any) -> dict[str, Any]:
        """Return the sentences by their names in errors."""
        if isinstance(sentences, str):
            return {OTHERS: sentences}
        listed = check_list(sentences, OTHERS, self.settings.max_rows)
        return {f"{OTHERS}[{number}]": text for number, text in enumerate(listed)}
