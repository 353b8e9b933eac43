"""A text to labels that the request names, by a model of natural language inference or GLiClass.

    {"inputs": "The team won the cup.", "parameters": {"candidate_labels": ["sports", "politics"]}}
    -> {"sequence": "The team won the cup.", "labels": ["sports", "politics"],
        "scores": [0.96, 0.04]}

Of a model of natural language inference, each label is a row: the text with the hypothesis of the
label. A GLiClass reads all labels with the text in one row. The rows of all requests of a batch run
together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NotRequired, cast

import numpy as np
import numpy.typing as npt
from pydantic import Field
from transformers import BatchEncoding, PreTrainedConfig
from typing_extensions import TypedDict

from ..batching.rows import Outputs
from ..batching.tokenization import Window, check_length, features, tokenize
from ..batching.words import PROMPTS, LabelledText, LabelledTokens
from ..checkpoints.architecture import base_class_for
from ..checkpoints.checkpoint import Checkpoint
from ..checkpoints.checkpoint_files import GLICLASS
from ..checkpoints.gliclass import END, LABEL, GliclassCheckpoint, read_gliclass_head
from ..checkpoints.pooling import PoolingHead
from ..config.handler_section import HandlerSection
from ..config.messages import enumerate_names
from ..errors import (
    BadRequest,
    RequestError,
    RequestTooLarge,
    Unprocessable,
    WrongCheckpoint,
    WrongConfig,
    attempt,
)
from ..types.decisions import Option, Question
from ..types.model_info import HubResult, ModelOutputs, TaskDescription, Wire
from ..types.parameters import ANY, TRUNCATED, PipelineNames, check_text
from ..types.request import Request
from .base import BaseTask, Label
from .bases.labels import (
    CandidateLabelParameters,
    Template,
    hypothesis,
    read_labels,
    sigmoid,
    softmax,
    split_inputs,
    with_input_labels,
)
from .bases.text_pairs import PairTask

TEXT_KEYS = ("text", "sequences")
TEMPLATE = "This example is {}."


class ZeroShotParameters(CandidateLabelParameters):
    """Parameters of the zero-shot-classification pipeline."""

    pipeline_names: ClassVar[PipelineNames] = PipelineNames(
        ignored={"batch_size": ANY, "padding": ANY, "truncation": (*TRUNCATED, "only_first")}
    )

    hypothesis_template: Template = TEMPLATE
    """The hypothesis of a label, which stands in the place of `{}`; for models of natural language
    inference."""
    multi_label: bool = False
    """Scores each label by itself. Without it, the scores of all labels sum to 1."""
    threshold: float = Field(default=0, ge=0, le=1)
    """Leaves out labels with a lower score."""


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
    threshold: float = 0.0
    is_decision: bool = False


def _label_by_label(found: LabelScores) -> list[Label]:
    """Return each label with its score."""
    pairs = zip(found["labels"], found["scores"], strict=True)
    return [{"label": label, "score": score} for label, score in pairs]


class Task(PairTask[ZeroShotInput]):
    """Zero-shot classification; answers as the pipeline does."""

    truncated_side = 0
    auto_class = "AutoModelForSequenceClassification"
    checkpoint_classes: ClassVar[Mapping[str, type[Checkpoint]]] = {GLICLASS: GliclassCheckpoint}
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
        self.entailment = self._find_entailment()

    @classmethod
    def for_checkpoint(cls, checkpoint: Checkpoint) -> type[BaseTask[Any, Any]]:
        """Return the class for a GLiClass, or for a model of natural language inference."""
        return GliclassTask if isinstance(checkpoint, GliclassCheckpoint) else cls

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
                self.check_whole_side(each)
                for each in self.hypotheses(parameters.hypothesis_template, labels)
            ],
            parameters.multi_label or len(labels) == 1,
            parameters.threshold,
        )

    def hypotheses(self, template: str, labels: Sequence[str]) -> list[str]:
        """Return what the model reads for each label.

        Raises:
            RequestError: the template is wrong, or the model reads none.
        """
        return [hypothesis(template, label) for label in labels]

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
        best = np.argsort(scores, kind="stable")[::-1]
        best = best[scores[best] >= item.threshold].tolist()
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

    def target(self, number: int) -> tuple[int, int]:
        """Return the row, and the number among its logits, by which a label is scored."""
        return number, self.entailment

    def texts_read(self, item: ZeroShotInput, number: int) -> list[str]:
        """Return the texts of the row of a label, to which offsets refer."""
        return [item.premise, item.hypotheses[number]]

    def _find_entailment(self) -> int:
        return _entailment_of(self.labels)

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


class GliclassTask(Task):
    """Zero-shot classification with all labels of a text in one row."""

    needs_offsets = True
    checkpoint: GliclassCheckpoint
    description = replace(Task.description, has_labels=False)

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        super().__init__(checkpoint, settings)
        if settings.is_exported:
            raise WrongConfig(
                "handler.save_mode",
                f"is {settings.save_mode}, and a GLiClass, whose labels are inputs, is not"
                " exported",
                "use save_mode: pretrained",
            )

    @classmethod
    def auto_class_for(cls, config: PreTrainedConfig) -> str:
        return base_class_for(config)

    @property
    def reduction(self) -> Callable[[], PoolingHead]:
        return lambda: read_gliclass_head(self.checkpoint)

    def hypotheses(self, template: str, labels: Sequence[str]) -> list[str]:
        """Return the labels, which the model reads as they are.

        Raises:
            Unprocessable: the request has a template.
        """
        if template != TEMPLATE:
            raise Unprocessable(
                "parameters: hypothesis_template is set, and this model reads labels without a"
                " hypothesis; leave it out."
            )
        return list(labels)

    def least_rows(self, item: ZeroShotInput) -> int:
        return 1

    def encoding_cost(self, item: ZeroShotInput) -> int:
        return sum(map(len, item.hypotheses))

    def encode(self, inputs: Sequence[ZeroShotInput]) -> list[list[Window] | RequestError]:
        first = self.checkpoint.head.prompt_first
        texts = [
            LabelledText.write(item.hypotheses, item.premise, (LABEL, END), labels_first=first)
            for item in inputs
        ]
        encoding = tokenize(self.tokenizer, [(each.string, None) for each in texts])
        return [attempt(self._row, text, encoding, place) for place, text in enumerate(texts)]

    def _row(self, text: LabelledText, encoding: BatchEncoding, number: int) -> list[Window]:
        whole = encoding.encodings[number]
        if not self.truncation:
            check_length(len(whole), self.max_tokens, "the text with the labels")
        found = LabelledTokens.of(text, whole, self.max_tokens)
        own = features(encoding, number, self.tokenizer.model_input_names)
        inputs = {name: [ids[place] for place in found.places] for name, ids in own.items()}
        read = self.checkpoint.head.places(found.marks, found.end, len(found.places))
        return [Window({**inputs, **read}, cast("Any", found.tokens))]

    def postprocess(self, row: Any, outputs: Outputs) -> Outputs:
        """Return the logits of the labels of a row; a batch has as many as its longest list."""
        count = max(row.features[PROMPTS])
        return {"logits": np.array(outputs["logits"][:count], dtype=np.float32)}

    def decision_scores(self, outputs: Outputs) -> Outputs:
        """Return the scores of two decisions for each logit. Shape: (…, 2)."""
        logits = outputs["logits"]
        return {"logits": np.stack([np.zeros_like(logits), logits], axis=-1)}

    def scores(self, item: ZeroShotInput, outputs: Sequence[Outputs]) -> npt.NDArray[np.float64]:
        logits = outputs[0]["logits"]
        return sigmoid(logits) if item.multi_label else softmax(logits)

    def target(self, number: int) -> tuple[int, int]:
        return 0, number

    def texts_read(self, item: ZeroShotInput, number: int) -> list[str]:
        return [item.premise]

    def _find_entailment(self) -> int:
        return 0


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
