"""A text to one vector, as sentence-transformers computes it.

{"inputs": "A fine film."}                                      -> [0.013, -0.082, …]
{"inputs": "A fine film.", "parameters": {"dimensions": 256}}   -> its first 256 numbers

A model of the kind of bge-m3 also has a weight and a vector for each token, of the same forward:

{"inputs": "Ada sings.", "parameters": {"return_sparse": true, "return_colbert_vecs": true}}
-> {"dense_vecs": [0.02, …], "lexical_weights": [{"index": 71, "value": 0.3, "token": "sing"}, …],
    "colbert_vecs": [[0.01, …], …]}

    colbert_linear.pt    `weight` and `bias` of the layer that makes the vectors of tokens
    sparse_linear.pt     `weight` and `bias` of the layer that makes their weights

Chen et al.: M3-Embedding, 2024. Source of the files: FlagEmbedding 1.4,
`EncoderOnlyEmbedderM3Runner`.

Chunks of one document have vectors that know the others (late chunking): one forward reads all of
them, and the vector of a chunk is the mean over its tokens.

{"inputs": {"chunks": ["Berlin is the capital.", "Its more than 3.85 million …"]}} -> [[…], […]]

Günther et al.: Late Chunking, 2024. The first and the last special token belong to the first and
the last chunk, so that a single chunk has the vector of its text.

The engine also takes token ids, special ones included, which wire formats of embeddings have.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar, NotRequired

import numpy as np
import torch
from typing_extensions import TypedDict

from ..batching.rows import Outputs, Row, RowOutcome
from ..batching.tokenization import Window
from ..checkpoints.checkpoint import Checkpoint
from ..checkpoints.checkpoint_files import BGE_M3
from ..checkpoints.pooling import CHUNKS, TextSlots
from ..checkpoints.sentence_transformers import (
    OUTPUT,
    SentencePooling,
    SentenceTransformer,
    load_layers,
    read_weights,
)
from ..config.handler_section import HandlerSection
from ..errors import BadRequest, RequestError, Unprocessable, WrongCheckpoint, attempt
from ..model import Model
from ..process.deadline import NO_DEADLINE, Deadline
from ..telemetry.metrics import Meter
from ..types.embeddings import as_list
from ..types.model_info import Exports, ModelOutputs, TaskDescription, Wire
from ..types.parameters import (
    ANY,
    AdapterParameters,
    Parameters,
    PipelineNames,
    check_list,
    check_object,
    check_text,
)
from ..types.request import Request, as_token_ids
from .base import BaseTask
from .bases.embedding import EmbeddedText, EmbeddingTask, PromptParameters, VectorParameters
from .sparse_embedding import SparseWeight, sparse_weights

VECTORS, WEIGHTS = BGE_M3
TOKEN_VECTORS, TOKEN_WEIGHTS = "token_embeddings", "token_weights"
FORMS = 'a text, or {"chunks": [a text, …]}'
NOTHING_CHOSEN = (
    "parameters: return_dense is false, and nothing else is to be returned; leave it out."
)


class EmbeddingParameters(VectorParameters, PromptParameters, AdapterParameters):
    """Parameters of `SentenceTransformer.encode`, and of embedding servers."""

    pipeline_names: ClassVar[PipelineNames] = PipelineNames(
        ignored={"batch_size": ANY, "padding": ANY, "show_progress_bar": ANY}
    )

    return_dense: bool = True
    """Returns the vector of the text."""
    return_sparse: bool = False
    """Returns the weights of the words of the text, for models such as bge-m3."""
    return_colbert_vecs: bool = False
    """Returns a vector for each token, for models such as bge-m3."""

    @property
    def names_results(self) -> bool:
        """Whether the result is an object, and not the vector of the text alone."""
        return self.return_sparse or self.return_colbert_vecs


class Chunks(TypedDict):
    """The chunks of a document, in their order."""

    chunks: list[str]


class TextVectors(TypedDict):
    """What a request chose, by the names of FlagEmbedding."""

    dense_vecs: NotRequired[list[float] | str]
    lexical_weights: NotRequired[list[SparseWeight]]
    colbert_vecs: NotRequired[list[list[float]]]


@dataclass(frozen=True)
class EmbeddingInput:
    """A text to embed.

    Attributes:
        other: the text that an explanation compares it with.
        starts: the first character of each chunk of the text; none for a text that is no chunks.
    """

    text: EmbeddedText
    parameters: EmbeddingParameters
    other: EmbeddedText | None = None
    starts: Sequence[int] = ()


class Task(EmbeddingTask[EmbeddingInput]):
    """Embeddings of texts; answers as sentence-transformers does."""

    parameters: ClassVar[type[Parameters]] = EmbeddingParameters
    description = TaskDescription(
        Wire(
            inputs=str | Chunks,
            results=list[float] | str | list[list[float]] | list[str],
            example={"inputs": "A fine film with a great cast."},
        ),
        outputs=ModelOutputs((OUTPUT,), are_vectors=True),
        exports=Exports(fastest_formats={"cpu": "openvino"}),
        service="embed",
        takes_adapters=True,
    )

    def parse(self, request: Request) -> EmbeddingInput:
        parameters: EmbeddingParameters = self.read_parameters(request.parameters)
        parameters.check_dimensions(self.modules.dimension)
        self._check_results(parameters)
        if isinstance(request.inputs, dict):
            return self._read_chunks(request.inputs, parameters)
        text = self.read_text(as_token_ids(request.inputs), "inputs", parameters)
        return EmbeddingInput(text, parameters)

    @classmethod
    def for_checkpoint(cls, checkpoint: Checkpoint) -> type[BaseTask[Any, Any]]:
        """Return the class for a model with a weight and a vector for each token, or for others."""
        has_layers = all((checkpoint.directory / name).is_file() for name in BGE_M3)
        return MultiVectorTask if has_layers else cls

    def encode(self, inputs: Sequence[EmbeddingInput]) -> list[list[Row] | RequestError]:
        encoded = self.encode_embedded(
            [[item.text, *([item.other] if item.other else [])] for item in inputs]
        )
        return [
            attempt(_with_chunks, item, rows)
            if item.starts and not isinstance(rows, RequestError)
            else rows
            for item, rows in zip(inputs, encoded, strict=True)
        ]

    def run(
        self, model: Model, rows: Sequence[Row], meter: Meter, deadline: Deadline = NO_DEADLINE
    ) -> Sequence[RowOutcome]:
        """Run rows; one with chunks runs alone, as it is as long as a document."""
        together = [row for row in rows if CHUNKS not in row.features]
        if len(together) == len(rows):
            return super().run(model, rows, meter, deadline)
        outcomes = iter(super().run(model, together, meter, deadline))
        return [
            self._run_chunks(model, row, meter, deadline)
            if CHUNKS in row.features
            else next(outcomes)
            for row in rows
        ]

    def decode(self, item: EmbeddingInput, rows: Sequence[Row], outputs: Sequence[Outputs]) -> Any:
        if item.starts:
            return [self._result(item, {OUTPUT: each}) for each in outputs[0][OUTPUT]]
        return self._result(item, outputs[0])

    def _result(self, item: EmbeddingInput, outputs: Outputs) -> Any:
        normalize = item.parameters.normalize
        vector = self.vector(
            outputs,
            normalize=self.modules.normalizes if normalize is None else normalize,
            dimensions=item.parameters.dimensions,
        )
        return item.parameters.result(vector)

    def _read_chunks(self, inputs: Any, parameters: EmbeddingParameters) -> EmbeddingInput:
        """Return the chunks as one text; a space is between two without white space there.

        Raises:
            BadRequest: they are no list of texts.
            Unprocessable: the vectors of this model are no means over tokens.
        """
        check_object(inputs, FORMS, ("chunks",))
        if self.modules.pooling.modes != ["mean"] or not self.tokenizer.is_fast:
            raise Unprocessable(
                "Late chunking needs a model whose vectors are the mean over tokens, and a fast"
                " tokenizer; embed each text by itself."
            )
        if parameters.names_results:
            raise BadRequest(
                "parameters: late chunking has one vector for each chunk; leave return_sparse and"
                " return_colbert_vecs out."
            )
        text, starts = "", list[int]()
        for number, chunk in enumerate(
            check_list(inputs["chunks"], "chunks", self.settings.max_rows, "chunk")
        ):
            checked = check_text(chunk, f"chunks[{number}]", self.max_characters)
            starts.append(len(text))
            is_apart = not text or text[-1].isspace() or checked[:1].isspace()
            text += checked if is_apart else f" {checked}"
        whole = replace(self.read_text(text, "chunks", parameters), truncate=False)
        return EmbeddingInput(
            whole, parameters, starts=[len(whole.prompt) + each for each in starts]
        )

    def _run_chunks(self, model: Model, row: Row, meter: Meter, deadline: Deadline) -> RowOutcome:
        if not model.capabilities.pools_chunks:
            return Unprocessable(
                "Late chunking is not done by this exported graph, which has one vector for each"
                " text; embed each text by itself, or set save_mode: pretrained."
            )
        (outcome,) = super().run(model, [row], meter, deadline)
        return outcome

    def _check_results(self, parameters: EmbeddingParameters) -> None:
        """Check that the model has what a request chose.

        Raises:
            BadRequest: it chose nothing.
            Unprocessable: the model has none of it.
        """
        if parameters.names_results:
            name = "return_sparse" if parameters.return_sparse else "return_colbert_vecs"
            raise Unprocessable(
                f"parameters: {name} is true, and this model has one vector for each text; leave it"
                " out, or serve a model such as bge-m3."
            )
        if not parameters.return_dense:
            raise BadRequest(NOTHING_CHOSEN)


def _with_chunks(item: EmbeddingInput, rows: Sequence[Row]) -> list[Row]:
    """Return the row of a text with the number of each token's chunk.

    A token belongs to the chunk that has its last character, and a special token to the chunk of
    the token before it.

    Raises:
        BadRequest: a chunk has no token.
    """
    (row,) = rows
    if not isinstance(row, Window):
        raise TypeError(row)
    ends = (bisect_right(item.starts, end - 1) for _, end in row.encoding.offsets)
    chunks = [max(1, each) for each in accumulate(ends, max)]
    if empty := set(range(1, len(item.starts) + 1)).difference(chunks):
        raise BadRequest(f"chunks[{min(empty) - 1}] has no tokens; leave it out.")
    return [replace(row, features={**row.features, CHUNKS: chunks})]


class MultiVectorTask(Task):
    """Embeddings of texts, with a weight and a vector for each of their tokens (bge-m3)."""

    description = replace(
        Task.description,
        wire=replace(Task.description.wire, results=list[float] | str | TextVectors),
        outputs=ModelOutputs(
            (OUTPUT, TOKEN_VECTORS, TOKEN_WEIGHTS),
            per_token=(TOKEN_VECTORS, TOKEN_WEIGHTS),
            are_vectors=True,
        ),
    )

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        super().__init__(checkpoint, settings)
        tokenizer = self.tokenizer
        self._without_weight = [
            *(tokenizer.cls_token_id, tokenizer.eos_token_id),
            *(tokenizer.pad_token_id, tokenizer.unk_token_id),
        ]

    @property
    def reduction(self) -> Callable[[], MultiVectorPooling]:
        return lambda: MultiVectorPooling(self.modules)

    def result_numbers(self, item: EmbeddingInput, rows: Sequence[Row]) -> int:
        if not item.parameters.return_colbert_vecs:
            return 0
        return self.modules.dimension * sum(map(len, rows))

    def decode(self, item: EmbeddingInput, rows: Sequence[Row], outputs: Sequence[Outputs]) -> Any:
        parameters = item.parameters
        if not parameters.names_results:
            return super().decode(item, rows, outputs)
        chosen: TextVectors = {}
        if parameters.return_dense:
            chosen["dense_vecs"] = super().decode(item, rows, outputs)
        if parameters.return_sparse:
            chosen["lexical_weights"] = self._lexical_weights(rows[0], outputs[0])
        if parameters.return_colbert_vecs:
            chosen["colbert_vecs"] = as_list(outputs[0][TOKEN_VECTORS][1:])
        return chosen

    def _check_results(self, parameters: EmbeddingParameters) -> None:
        if not (parameters.return_dense or parameters.names_results):
            raise BadRequest(NOTHING_CHOSEN)

    def _lexical_weights(self, row: Row, outputs: Outputs) -> list[SparseWeight]:
        """Return the largest weight of each token of the vocabulary in a row."""
        ids = np.asarray(row.features["input_ids"])
        weights = np.zeros(self.checkpoint.vocab_size, dtype=np.float32)
        np.maximum.at(weights, ids, outputs[TOKEN_WEIGHTS][:, 0])
        weights[[each for each in self._without_weight if each is not None]] = 0
        return sparse_weights(weights, self.tokenizer)


def token_layers(directory: Path) -> tuple[torch.nn.Linear, torch.nn.Linear]:
    """Return the layer of the vectors of tokens, and the layer of their weights.

    Raises:
        WrongCheckpoint: a file is damaged, or they take vectors of different sizes.
    """
    vectors, weights = (_read_linear(directory / name) for name in BGE_M3)
    if weights.out_features != 1 or weights.in_features != vectors.in_features:
        raise WrongCheckpoint(
            WEIGHTS,
            f"has a layer of {weights.in_features} to {weights.out_features} numbers, and {VECTORS}"
            f" takes {vectors.in_features}",
            "pack the files of one checkpoint",
        )
    return vectors, weights


class MultiVectorPooling(SentencePooling):
    """The vector of each text, and a vector of length 1 and a weight of each token, in float32."""

    def __init__(self, modules: SentenceTransformer) -> None:
        super().__init__(modules.pooling, load_layers(modules.directory, modules.layers))
        self.token_vectors, self.token_weights = token_layers(modules.directory)

    def outputs(
        self, values: torch.Tensor, slots: TextSlots, **inputs: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """Return the vectors of texts, (texts, size), and of slots: (rows, width, size or 1)."""
        values = values.float()
        return {
            **super().outputs(values, slots, **inputs),
            TOKEN_VECTORS: torch.nn.functional.normalize(self.token_vectors(values), dim=-1),
            TOKEN_WEIGHTS: torch.relu(self.token_weights(values)),
        }


def _read_linear(path: Path) -> torch.nn.Linear:
    """Return the layer of a file, which must have tensors alone."""
    try:
        weights = read_weights(path)
        size, hidden_size = weights["weight"].shape
        linear = torch.nn.Linear(hidden_size, size)
        linear.load_state_dict({name: each.float() for name, each in weights.items()})
    except Exception:  # noqa: BLE001 - torch raises errors of many kinds for damaged files
        # The message of torch recommends to load the file unsafely.
        raise WrongCheckpoint(
            path.name,
            "is not a pickle of the tensors weight and bias alone",
            "pack the file as FlagEmbedding has saved it",
        ) from None
    return linear
