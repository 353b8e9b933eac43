"""A text to a vector for each of its tokens: the last hidden states of a model.

{"inputs": "A fine film."}   -> [[[0.21, -1.3, …], …]], special tokens included
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from handlers.batching.rows import Outputs
from handlers.batching.tokenization import Window
from handlers.errors import RequestError
from handlers.schemas.parameters import Parameters
from handlers.schemas.pipeline_names import ANY, PipelineNames
from handlers.schemas.request import Request
from handlers.schemas.text_checks import check_text
from handlers.tasks.base import BaseTask


class FeatureParameters(Parameters):
    """Parameters of the feature-extraction pipeline."""

    pipeline_names: ClassVar[PipelineNames] = PipelineNames(
        ignored={"batch_size": ANY, "padding": ANY, "return_tensors": (False,)},
        switches={"truncation": {"truncate": True}},
    )

    truncate: bool | None = None
    """Cuts a text that is too long, instead of refusing it. Without it, `truncation` of the YAML.
    """


@dataclass(frozen=True)
class FeatureQuery:
    """A text, and whether it is cut if it is too long; None for what the YAML says."""

    text: str
    truncate: bool | None


class Task(BaseTask[FeatureQuery, Window]):
    """Hidden states; answers as the feature-extraction pipeline does."""

    auto_class = "AutoModel"
    outputs = ("last_hidden_state",)
    per_token = ("last_hidden_state",)
    embeds = True
    operation = "embed_all"
    parameters = FeatureParameters
    inputs = str
    results = list[list[list[float]]]
    sample: ClassVar[Mapping[str, Any]] = {"inputs": "A fine film with a great cast."}

    def parse(self, request: Request) -> FeatureQuery:
        parameters: FeatureParameters = self.read_parameters(request.parameters)
        text = check_text(request.inputs, "inputs", self.max_characters)
        return FeatureQuery(text, parameters.truncate)

    def encode(self, queries: Sequence[FeatureQuery]) -> list[list[Window] | RequestError]:
        texts = [(query.text, None) for query in queries]
        return self.encode_texts(texts, [query.truncate for query in queries])

    def decode(
        self, query: FeatureQuery, rows: Sequence[Window], outputs: Sequence[Outputs]
    ) -> Any:
        return [outputs[0]["last_hidden_state"].tolist()]
