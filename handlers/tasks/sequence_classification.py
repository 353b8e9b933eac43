"""A text, or a pair of texts, to labels with scores.

{"inputs": "A fine film."}                                 -> [{"label": "POSITIVE", "score": 0.99}]
{"inputs": "A fine film.", "parameters": {"top_k": null}}  -> every label, best first
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NotRequired

import numpy.typing as npt
from pydantic import BeforeValidator, PositiveInt
from typing_extensions import TypedDict

from ..batching.rows import Outputs
from ..batching.tokenization import Text, Window
from ..checkpoints.checkpoint import Checkpoint
from ..config.handler_section import HandlerSection
from ..config.messages import enumerate_names, quote
from ..errors import BadRequest, RequestError, Unprocessable
from ..types.decisions import Question
from ..types.model_info import (
    TEXT_COLUMN,
    HubResult,
    LegacyResponse,
    ModelOutputs,
    TaskDescription,
    Wire,
)
from ..types.parameters import (
    ANY,
    TRUNCATED,
    AdapterParameters,
    PipelineNames,
    check_text,
    in_lower_case,
    json_type,
)
from ..types.request import Request
from .base import Label
from .bases.labels import FUNCTIONS, Function, best_labels, check_names, softmax
from .bases.text import TextTask


class ClassificationParameters(AdapterParameters):
    """Parameters of the text-classification pipeline."""

    pipeline_names: ClassVar[PipelineNames] = PipelineNames(
        ignored={"batch_size": ANY, "padding": ANY, "truncation": TRUNCATED},
        switches={"return_all_scores": {"top_k": None}},
    )

    top_k: PositiveInt | None = 1
    """Number of labels, best first. `null` returns all of them."""
    function_to_apply: Annotated[Function | None, BeforeValidator(in_lower_case)] = None
    """Turns logits into scores. Without it, `softmax`; `sigmoid` for one label and for
    multi-label models; `none` for regression."""
    max_length: PositiveInt | None = None
    """Maximum tokens, special tokens included. A longer text is cut."""


class TextPair(TypedDict):
    """Two texts that are read together."""

    text: str
    text_pair: NotRequired[str]


@dataclass(frozen=True)
class ClassificationInput:
    """One text or pair to classify; `single` is whether the result is a label and not a list.

    As in the pipeline, it is for a pair and for items of a list, unless `top_k` is set.

    Attributes:
        options: the numbers of the labels that a question allows; one for a statement. The result
            is then the probability of each option.
    """

    text: Text
    parameters: ClassificationParameters
    single: bool
    options: Sequence[int] = ()


def _in_a_list(labels: Any) -> list[Any]:
    """Return the labels of one text as the first of several lists of labels."""
    return [labels]


def _legacy_response(labels: Any) -> str:
    """Return the label alone."""
    return str(labels[0]["label"])


class Task(TextTask[ClassificationInput, Window]):
    """Sequence classification; answers as the text-classification pipeline does."""

    auto_class = "AutoModelForSequenceClassification"
    description = TaskDescription(
        Wire(
            inputs=str | TextPair,
            results=Label | list[Label],
            example={"inputs": "A fine film with a great cast."},
            input_columns=(TEXT_COLUMN, ("text", "text_pair")),
            result_columns=("label", "score"),
            hub_result=HubResult(re.compile("hf_hub/|@huggingface/inference/"), _in_a_list),
            legacy_response=LegacyResponse({"top_k": 1}, _legacy_response),
        ),
        outputs=ModelOutputs(("logits",)),
        service="predict",
        has_labels=True,
        decides=True,
        moderates=True,
        takes_adapters=True,
    )
    parameters = ClassificationParameters

    def __init__(self, checkpoint: Checkpoint, settings: HandlerSection) -> None:
        super().__init__(checkpoint, settings)
        self.categories = self._read_categories()

    def parse(self, request: Request) -> ClassificationInput:
        parameters: ClassificationParameters = self.read_parameters(request.parameters)
        if isinstance(request.inputs, Question):
            return self._decision(request.inputs, parameters)
        single_text = not request.is_batch_item and isinstance(request.inputs, str)
        single = not single_text and "top_k" not in parameters.model_fields_set
        if isinstance(request.inputs, str):
            text: Text = check_text(request.inputs, "inputs", self.max_characters), None
        else:
            text = self._pair_of(request.inputs)
        return ClassificationInput(text, parameters, single)

    def encode(self, inputs: Sequence[ClassificationInput]) -> list[list[Window] | RequestError]:
        rows: dict[int, list[Window] | RequestError] = {}
        for paired in (False, True):
            numbers, texts, max_lengths = list[int](), list[Text](), list[int | None]()
            for number, item in enumerate(inputs):
                if (item.text[1] is not None) is paired:
                    numbers.append(number)
                    texts.append(item.text)
                    max_lengths.append(item.parameters.max_length)
            encoded = self.encode_texts(texts, max_lengths=max_lengths)
            rows.update(zip(numbers, encoded, strict=True))
        return list(map(rows.__getitem__, range(len(inputs))))

    def decode(
        self, item: ClassificationInput, rows: Sequence[Window], outputs: Sequence[Outputs]
    ) -> Any:
        if item.options:
            return self.decision(item, outputs[0])
        scores = self.scores(item, outputs[0])
        found = best_labels(
            self.labels_of(item.parameters.adapter_id), scores, item.parameters.top_k
        )
        return found[0] if item.single else found

    def scores(self, item: ClassificationInput, outputs: Outputs) -> npt.NDArray[Any]:
        """Return the score of each class. Shape: (classes,)."""
        count = len(self.labels_of(item.parameters.adapter_id))
        function = item.parameters.function_to_apply or self._function(count)
        return FUNCTIONS[function](outputs["logits"][:count])

    def decision(self, item: ClassificationInput, outputs: Outputs) -> list[float]:
        """Return the probability of each option of a question.

        Labels that are no options do not count: the probabilities are a softmax over the options.
        """
        if len(item.options) > 1:
            return self.calibrated(softmax(outputs["logits"][list(item.options)]).tolist())
        function = FUNCTIONS[self._function(len(self.labels_of(item.parameters.adapter_id)))]
        probability = float(function(outputs["logits"])[item.options[0]])
        return self.calibrated([probability, 1 - probability])

    def _function(self, count: int) -> Function:
        """Return what makes scores of the logits of a number of labels."""
        if self.checkpoint.config.problem_type == "regression":
            return "none"
        if self.checkpoint.independent_labels or count == 1:
            return "sigmoid"
        return "softmax"

    def _decision(
        self, question: Question, parameters: ClassificationParameters
    ) -> ClassificationInput:
        """Return a question whose options, or whose statement, are labels.

        Raises:
            Unprocessable: one is no label, or the model is a regression.
        """
        if self.checkpoint.config.problem_type == "regression":
            raise Unprocessable("This model's result is a number, and no label; ask another model.")
        is_statement = question.kind == "predicate"
        names = [each.name for each in question.options]
        named = [question.instructions] if is_statement else names
        labels = self.labels_of(parameters.adapter_id)
        options = [_label_number(labels, name) for name in named]
        return ClassificationInput((question.text, None), parameters, single=False, options=options)

    def _read_categories(self) -> Mapping[str, str]:
        """Return the category of each label that stands for one; the others are harmless.

        Raises:
            WrongConfig: the YAML names a label or a category that the model does not have.
        """
        table = self.settings.moderation
        # One of the labels that exclude one another means harmless.
        if not table and self.checkpoint.independent_labels:
            table = {label: label for label in self.labels}
        remedy = "add handler.moderation, or remove it"
        check_names("moderation", table, self.labels, "a label of this model", remedy)
        thresholds = self.settings.moderation_thresholds
        check_names("moderation_thresholds", thresholds, table.values(), "a category", remedy)
        return table

    def _pair_of(self, inputs: Any) -> Text:
        if isinstance(inputs, dict):
            return self._pair(**_known_keys(inputs))
        if isinstance(inputs, list) and len(inputs) == 2:
            return self._pair(*inputs)
        raise BadRequest(
            f'inputs must be a text or {{"text": …, "text_pair": …}}, and is {json_type(inputs)}.'
        )

    def _pair(self, text: Any = None, text_pair: Any = None) -> Text:
        first = check_text(text, "inputs" if text_pair is None else "text", self.max_characters)
        if text_pair is None:
            return first, None
        return first, check_text(text_pair, "text_pair", self.max_characters)


def _label_number(labels: Sequence[str], name: str) -> int:
    """Return the number of the label with a name, in any case."""
    known = [label.casefold() for label in labels]
    if name.casefold() not in known:
        raise Unprocessable(
            f"{quote(name)} is no label of this model, which answers questions whose options"
            f" are its labels, {enumerate_names(labels)}; a predicate names one of them."
        )
    return known.index(name.casefold())


def _known_keys(inputs: dict[str, Any]) -> dict[str, Any]:
    if unknown := sorted(map(str, inputs.keys() - {"text", "text_pair"})):
        raise BadRequest(
            f"inputs has the unknown key {quote(unknown[0])}; it may hold text and text_pair."
        )
    return inputs
