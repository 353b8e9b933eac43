"""A text to labels that the request names, by a model of natural language inference.

    {"inputs": "The team won the cup.", "parameters": {"candidate_labels": ["sports", "politics"]}}
    -> {"sequence": "The team won the cup.", "labels": ["sports", "politics"],
        "scores": [0.96, 0.04]}

Each label is a row: the text with the hypothesis of the label. The rows of all labels and requests
of a batch run together.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NotRequired

import numpy as np
import numpy.typing as npt
from typing_extensions import TypedDict

from ..batching.rows import Outputs
from ..batching.tokenization import Window
from ..checkpoints.checkpoint import Checkpoint
from ..config.handler_section import HandlerSection
from ..config.messages import enumerate_names
from ..errors import BadRequest, RequestTooLarge, WrongCheckpoint
from ..types.decisions import Option, Question
from ..types.model_info import HubResult, ModelOutputs, TaskDescription, Wire
from ..types.parameters import ANY, TRUNCATED, PipelineNames, check_text
from ..types.request import Request
from .base import Label
from .bases.labels import (
    CandidateLabelParameters,
    Template,
    hypothesis,
    read_labels,
    softmax,
    split_inputs,
    with_input_labels,
)
from .bases.text_pairs import PairTask

TEXT_KEYS = ("text", "sequences")


class ZeroShotParameters(CandidateLabelParameters):
    """Parameters of the zero-shot-classification pipeline."""

    pipeline_names: ClassVar[PipelineNames] = PipelineNames(
        ignored={"batch_size": ANY, "padding": ANY, "truncation": (*TRUNCATED, "only_first")}
    )

    hypothesis_template: Template = "This example is {}."
    """The hypothesis of a label, which stands in the place of `{}`."""
    multi_label: bool = False
    """Scores each label by itself, by its entailment against its contradiction. Without it, the
    scores of all labels sum to 1."""


class TextWithLabels(TypedDict):
    """A text, and the labels to choose from, if `parameters` does not have them."""

    text: str
    candidate_labels: NotRequired[str | list[str]]


class SequencesWithLabels(TypedDict):
    """A text under its name in the pipeline, and the labels to choose from."""

    sequences: str
    candidate_labels: NotRequired[str | list[str]]


class LabelScores(TypedDict):
    """A text, its labels, best first, and their scores."""

    sequence: str
    labels: list[str]
    scores: list[float]


@dataclass(frozen=True)
class ZeroShotInput:
    """A text with its labels.

    Attributes:
        premise: its beginning, as far as a row can have it.
        hypotheses: the hypothesis of each label.
        multi_label: whether each label is scored by itself.
        is_decision: whether the result is the probability of each option of a question, which is a
            label; a predicate whose `false` is not described has one label.
    """

    text: str
    premise: str
    labels: Sequence[str]
    hypotheses: Sequence[str]
    multi_label: bool
    is_decision: bool = False


def _label_by_label(found: LabelScores) -> list[Label]:
    """Return each label with its score."""
    pairs = zip(found["labels"], found["scores"], strict=True)
    return [{"label": label, "score": score} for label, score in pairs]


class Task(PairTask[ZeroShotInput]):
    """Zero-shot classification; answers as the pipeline does."""

    truncated_side = 0
    auto_class = "AutoModelForSequenceClassification"
    description = TaskDescription(
        Wire(
            inputs=str | TextWithLabels | SequencesWithLabels,
            results=LabelScores,
            example={
                "inputs": {"text": "The music is lovely.", "candidate_labels": "music, weather"}
            },
            input_columns=(("text", "candidate_labels"),),
            # Versions below 1 of the hub's client read the result of the pipeline.
            hub_result=HubResult(re.compile("hf_hub/[1-9]"), _label_by_label),
        ),
        outputs=ModelOutputs(("logits",)),
        has_labels=True,
        decides=True,
    )
    parameters = ZeroShotParameters

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        super().__init__(checkpoint, settings)
        self.entailment = _entailment_of(self.labels)

    @classmethod
    def example_inputs(cls, text: str) -> dict[str, str]:
        return {"text": text, "candidate_labels": "music"}

    def parse(self, request: Request) -> ZeroShotInput:
        if isinstance(request.inputs, Question):
            return self._decision(request.inputs)
        inputs, labels_given = split_inputs(request.inputs)
        name, text = _named_text(inputs)
        text = check_text(text, name, self.max_characters)
        parameters: ZeroShotParameters = self.read_parameters(
            with_input_labels(dict(request.parameters), labels_given)
        )
        labels = read_labels(
            parameters.candidate_labels, self.settings.max_rows, self.max_characters
        )
        return ZeroShotInput(
            text,
            self.beginning(text),
            labels,
            [
                self.check_whole_side(hypothesis(parameters.hypothesis_template, label))
                for label in labels
            ],
            parameters.multi_label or len(labels) == 1,
        )

    def pairs(self, item: ZeroShotInput) -> list[tuple[str, str]]:
        return [(item.premise, hypothesis) for hypothesis in item.hypotheses]

    def truncates(self, item: ZeroShotInput) -> bool:
        return self.truncation

    def name_of(self, item: ZeroShotInput, number: int) -> str:
        return "the text with a hypothesis"

    def lack_of_room(self, tokens: int, limit: int) -> str:
        return (
            f"a hypothesis has {tokens:,} tokens with the special ones, and this model takes"
            f" {limit:,} with the text; send shorter labels."
        )

    def decode(
        self, item: ZeroShotInput, rows: Sequence[Window], outputs: Sequence[Outputs]
    ) -> Any:
        scores = self.scores(item, outputs)
        if item.is_decision:
            return self.decision(scores)
        best = np.argsort(scores, kind="stable")[::-1].tolist()
        return {
            "sequence": item.text,
            "labels": [item.labels[number] for number in best],
            "scores": [float(scores[number]) for number in best],
        }

    def scores(self, item: ZeroShotInput, outputs: Sequence[Outputs]) -> npt.NDArray[np.float64]:
        """Return the score of each label. Shape: (labels,)."""
        logits = np.stack([each["logits"] for each in outputs])
        if not item.multi_label:
            return softmax(logits[:, self.entailment])
        # As in the pipeline: the contradiction is the first class, or the last one.
        contradiction = -1 if self.entailment == 0 else 0
        return np.asarray(softmax(logits[:, [contradiction, self.entailment]])[:, 1])

    def decision(self, scores: npt.NDArray[np.float64]) -> list[float]:
        """Return the probability of each option of a question; one score is of a statement."""
        probabilities = scores.tolist()
        whole = [*probabilities, 1 - probabilities[0]] if len(scores) == 1 else probabilities
        return self.calibrated(whole)

    def _decision(self, question: Question) -> ZeroShotInput:
        """Return a question with a hypothesis for each option, or for its statement alone."""
        is_statement = question.kind == "predicate" and question.options[1].description is None
        options = question.options[: 1 if is_statement else None]
        if len(options) > self.settings.max_rows:
            raise RequestTooLarge(
                f"the question has {len(options)} options, and this model takes"
                f" {self.settings.max_rows} a question; send fewer."
            )
        hypotheses = [self.check_whole_side(_hypothesis_of(question, each)) for each in options]
        return ZeroShotInput(
            question.text,
            self.beginning(question.text),
            [each.name for each in options],
            hypotheses,
            multi_label=len(options) == 1,
            is_decision=True,
        )


def _hypothesis_of(question: Question, option: Option) -> str:
    """Return the statement that an option is the answer."""
    if question.kind == "predicate":
        parts = (question.instructions, option.description)
    else:
        parts = (question.instructions, str(option))
    return " ".join(filter(None, parts))


def _named_text(inputs: Any) -> tuple[str, Any]:
    """Return the name and the text of inputs without labels."""
    if not isinstance(inputs, dict):
        return "inputs", inputs
    if len(inputs) != 1 or not inputs.keys() <= set(TEXT_KEYS):
        raise BadRequest('inputs must be a text or {"text": …, "candidate_labels": […]}.')
    return next(iter(inputs.items()))


def _entailment_of(labels: Sequence[str]) -> int:
    """Return the class of entailment, which its name tells.

    Raises:
        WrongCheckpoint: no class is named so.
    """
    named = (number for number, name in enumerate(labels) if name.lower().startswith("entail"))
    found = next(named, None)
    if found is None:
        raise WrongCheckpoint(
            "labels",
            f"are {enumerate_names(labels)}, and this mode reads the score of a class whose name"
            " begins with entail",
            "use a checkpoint of natural language inference, or name its classes in"
            " index_to_name.json beside it",
        )
    return found
