"""A question about an image, to answers.

    {"inputs": {"image": "<base64>", "question": "What is it?"}}
    -> [{"score": 0.97, "answer": "a square"}, …]

A model that generates its answers, such as BLIP, has one answer without a score.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, ClassVar, NotRequired

import numpy as np
import numpy.typing as npt
from pydantic import PositiveInt
from transformers import MODEL_FOR_VISUAL_QUESTION_ANSWERING_MAPPING
from typing_extensions import TypedDict

from ..batching.padding import run_by_shape
from ..batching.rows import Outputs, RowOutcome
from ..checkpoints.checkpoint import Checkpoint
from ..config.handler_section import HandlerSection
from ..model import Model
from ..process.deadline import NO_DEADLINE, Deadline, before
from ..process.ranks import seeded
from ..telemetry.metrics import Meter
from ..types.model_info import Exports, ModelOutputs, TaskDescription, Wire
from ..types.parameters import ANY, TRUNCATED, Parameters, PipelineNames
from .bases.image import (
    EXAMPLE_QUESTION,
    IMAGE_ROWS,
    ImageQuestionInput,
    ImageQuestionTask,
    ImageRow,
    answer_settings,
    answer_text,
    generate_answers,
)
from .bases.labels import sigmoid
from .bases.media import MediaInput

# Questions of a few tokens more or less share a forward.
TOKEN_STEP = 8


class VisualQuestionParameters(Parameters):
    """Parameters of the visual-question-answering pipeline of transformers 4."""

    pipeline_names: ClassVar[PipelineNames] = PipelineNames(
        ignored={"batch_size": ANY, "padding": ANY, "timeout": ANY, "truncation": TRUNCATED}
    )

    top_k: PositiveInt = 5
    """Number of answers, best first. A model that generates its answer has one."""


class VisualAnswer(TypedDict):
    """An answer, and how likely it is; a generated one has no score."""

    score: NotRequired[float]
    answer: str


class Task(ImageQuestionTask):
    """Visual question answering; answers as the pipeline of transformers 4 does."""

    auto_class = "AutoModelForVisualQuestionAnswering"
    description = TaskDescription(
        Wire(
            inputs=ImageQuestionInput,
            results=list[VisualAnswer],
            example=EXAMPLE_QUESTION,
            input_columns=(("image", "question"),),
            result_columns=("answer", "score"),
        ),
        outputs=ModelOutputs(("logits",)),
        rows=IMAGE_ROWS,
        exports=Exports(supported=False),
    )
    parameters = VisualQuestionParameters

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        super().__init__(checkpoint, settings)
        self.writes_answers = _generates(checkpoint)
        self.explains = not self.writes_answers
        self.labels = () if self.writes_answers else checkpoint.labels
        if self.writes_answers:
            self.description = replace(self.description, outputs=ModelOutputs(()))
            # Others, such as token types, are no inputs of these models.
            self.tokenizer.model_input_names = ["input_ids", "attention_mask"]
        positions = getattr(checkpoint.config.get_text_config(), "max_position_embeddings", None)
        self._generation = answer_settings(checkpoint, settings.max_sequences, positions)

    def tokens(self, question: str) -> dict[str, np.ndarray[Any, Any]]:
        """Return the model inputs of a question, padded unless the model generates.

        BLIP's decoder reads the padding of a question.
        """
        tokens = super().tokens(question)
        if self.writes_answers:
            return tokens
        length = len(tokens["input_ids"])
        width = min(-(-length // TOKEN_STEP) * TOKEN_STEP, self.max_tokens or sys.maxsize)
        fillers = {"input_ids": self.checkpoint.pad_token_id}
        return {
            name: np.pad(ids, (0, width - length), constant_values=fillers.get(name, 0))
            for name, ids in tokens.items()
        }

    def run(
        self, model: Model, rows: Sequence[ImageRow], meter: Meter, deadline: Deadline = NO_DEADLINE
    ) -> Sequence[RowOutcome]:
        if not self.writes_answers:
            with fixed_patch_order():
                return super().run(model, rows, meter, deadline)
        forward = before(deadline, generate_answers(model, self._generation, deadline))
        return run_by_shape(forward, rows, budget=self.budget, meter=meter)

    def decode(self, item: MediaInput, rows: Sequence[ImageRow], outputs: Sequence[Outputs]) -> Any:
        if self.writes_answers:
            return [{"answer": answer_text(self.tokenizer, outputs[0]).strip()}]
        scores = self.scores(outputs[0])
        best = np.argsort(-scores, kind="stable")[: item.parameters.top_k]
        return [{"score": float(scores[number]), "answer": self.labels[number]} for number in best]

    def scores(self, outputs: Outputs) -> npt.NDArray[Any]:
        """Return the score of each answer that the model chooses among. Shape: (answers,)."""
        return sigmoid(outputs["logits"])


def fixed_patch_order() -> AbstractContextManager[None]:
    """Have ViLT take the patches of an image in one order within the block.

    It shuffles them, which changes how sums are rounded.
    """
    return seeded(0)


def _generates(checkpoint: Checkpoint) -> bool:
    """Return whether the model writes its answers, and does not choose them among labels."""
    kind = MODEL_FOR_VISUAL_QUESTION_ANSWERING_MAPPING.get(type(checkpoint.config), None)
    return kind is not None and bool(kind.can_generate())
