"""Questions to a decoder: the probability of each answer, read where the answer begins.

Each option has a label of one token: Yes and No, a letter, or the number of a level. The prompt
names them, and the probabilities are a softmax over the scores of their tokens after the prompt.
An option may so have any number of tokens, and long ones are not less likely than short ones.

Prompts about one text begin with it. What they have in common is computed once.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from transformers import PreTrainedTokenizerBase

from ..batching.padding import Padding, group_by_length, pad, run_in_groups
from ..batching.rows import MIN_SHARED, RowOutcome, after, shared_tokens
from ..batching.tokenization import Window
from ..config.messages import enumerate_names
from ..errors import Unprocessable, attempt_all
from ..model import Model
from ..process.deadline import Deadline
from ..telemetry.metrics import Meter
from ..types.decisions import Kind, Question
from .chat import Message, TemplateOptions, prompt_of

LABELS: Mapping[Kind, Sequence[str]] = {
    "predicate": ("Yes", "No"),
    "choice": string.ascii_uppercase,
    "score": string.digits,
}
REQUESTS: Mapping[Kind, str] = {
    "predicate": "Answer with Yes or No only.",
    "choice": "Answer with the letter of one option only.",
    "score": "Answer with the number of one level only.",
}
# Ends a prompt of a checkpoint without a chat template.
ANSWER = "\nAnswer:"
# Stands for the question where the end of a prompt is looked for.
MARK = "x7q"
# Templates that can leave the thoughts of a model out read this; others ignore it.
WITHOUT_THOUGHTS = TemplateOptions(arguments={"enable_thinking": False})
THOUGHTS_BEGIN, THOUGHTS_END = "<think>", "</think>"


@dataclass(frozen=True)
class QuestionRow(Window):
    """The tokens of a question's prompt.

    Attributes:
        labels: the id of the token of each option.
        text: the text that the question is about; prompts about one text share its tokens.
        adapter_id: the name of the LoRA adapter; None for the model itself.
    """

    labels: Sequence[int]
    text: str
    adapter_id: str | None = None


class QuestionPrompts:
    """Writes the prompts of questions, as the checkpoint's chat template has them if there is one.

    Args:
        max_characters: the maximum number of characters of a prompt.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, max_characters: int) -> None:
        self._tokenizer, self._max_characters = tokenizer, max_characters
        self._ids: dict[Sequence[str], list[int]] = {}

    @property
    def is_chat(self) -> bool:
        """Whether prompts have special tokens of a chat template."""
        return bool(self._tokenizer.chat_template)

    def prompt(self, question: Question) -> str:
        """Return the prompt of a question.

        Raises:
            RequestError: there are more options than labels, or the prompt is too long.
        """
        labels = LABELS[question.kind]
        if len(question.options) > len(labels):
            raise Unprocessable(
                f"a {question.kind} has {len(question.options)} options, and this model has labels"
                f" for {len(labels)}; send fewer."
            )
        text = f"{question.text}\n\n{_describe(question)}\n{REQUESTS[question.kind]}"
        return self._written(text)

    def label_ids(self, question: Question) -> Sequence[int]:
        """Return the id of the token of each option.

        Raises:
            Unprocessable: the answer begins with other text, or the tokenizer splits a label.
        """
        labels = tuple(LABELS[question.kind][: len(question.options)])
        if labels not in self._ids:
            self._ids[labels] = self._read_ids(labels)
        return self._ids[labels]

    def _written(self, text: str) -> str:
        if not self.is_chat:
            return text + ANSWER
        message: Message = {"role": "user", "content": text}
        return prompt_of([message], self._tokenizer, self._max_characters, (), WITHOUT_THOUGHTS)

    def _read_ids(self, labels: Sequence[str]) -> list[int]:
        """Return the tokens of labels after a prompt, all with a space before them or all without.

        Raises:
            Unprocessable: see :meth:`label_ids`.
        """
        end = self._written(MARK).rpartition(MARK)[2]
        for space in ("", " ") if self.is_chat else (" ",):
            found = [self.first_id(end, space + label, is_single=True) for label in labels]
            if None not in found and len(set(found)) == len(found):
                return [number for number in found if number is not None]
        raise Unprocessable(
            "The tokenizer of this model has no single token for each of the answers"
            f" {enumerate_names(labels)} after its prompt; ask another model."
        )

    def first_id(self, end: str, written: str, *, is_single: bool = False) -> int | None:
        """Return the first token of an answer after the end of a prompt.

        It is None where the tokens of the prompt are others before the answer.

        Args:
            is_single: whether the answer has to be one token; the result is None otherwise.

        Raises:
            Unprocessable: the answer begins with thoughts.
        """
        if THOUGHTS_BEGIN in end.rpartition(THOUGHTS_END)[2]:
            raise Unprocessable(
                "The chat template of this model begins an answer with its thoughts, so that the"
                " answer is not known before they are written; ask another model."
            )
        before, ids = self._tokenize(end), self._tokenize(end + written)
        own = ids[len(before) :]
        if ids[: len(before)] != before or not own or (is_single and len(own) > 1):
            return None
        return own[0]

    def _tokenize(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])


def _describe(question: Question) -> str:
    """Return the instructions, with a line for each option that needs one."""
    lines = [question.instructions]
    for label, option in zip(LABELS[question.kind], question.options, strict=False):
        if question.kind != "predicate":
            lines.append(f"{label}: {option}")
        elif option.description is not None:
            lines.append(f"{label}: {option.description}")
    return "\n".join(filter(None, lines))


@dataclass(frozen=True)
class OptionScorer:
    """Runs the prompts of questions.

    Attributes:
        padding: the padding of rows, on the right.
        budget: the maximum number of tokens of the rows in one forward.
    """

    model: Model
    padding: Padding
    budget: int
    meter: Meter
    deadline: Deadline

    def score(self, rows: Sequence[QuestionRow]) -> list[RowOutcome]:
        """Return the scores of the options of each row, as `labels`."""
        return run_in_groups(self._score_alike, rows, lambda row: (row.adapter_id, row.text))

    def _score_alike(self, rows: Sequence[QuestionRow]) -> Sequence[RowOutcome]:
        """Return the outcomes of rows about one text."""
        alone = self.model.runs_alone or self.model.padded_limit < max(map(len, rows))
        if alone or len(rows) == 1:
            return self._in_groups(rows, 0 if alone else self.budget, self._forward)
        shared = shared_tokens(rows)
        if shared < MIN_SHARED:
            return self._in_groups(rows, self.budget, self._forward)
        with self.model.with_adapters([rows[0].adapter_id]):
            prefix = self.model.read_prefix(list(rows[0].features["input_ids"][:shared]))
        if prefix is None:
            return self._in_groups(rows, self.budget, self._forward)
        self.meter.count(forwards=1, tokens=shared, slots=shared)
        return self._in_groups(rows, self.budget, partial(self._continue, prefix, shared))

    def _in_groups(
        self,
        rows: Sequence[QuestionRow],
        budget: int,
        run: Callable[[Sequence[QuestionRow]], list[RowOutcome]],
    ) -> list[RowOutcome]:
        outcomes: dict[int, RowOutcome] = {}
        for group in group_by_length([len(row) for row in rows], budget):
            found = attempt_all(run, [rows[number] for number in group])
            outcomes.update(zip(group, found, strict=True))
        return [outcomes[number] for number in range(len(rows))]

    def _continue(self, prefix: Any, shared: int, rows: Sequence[QuestionRow]) -> list[RowOutcome]:
        return self._forward([after(row, shared) for row in rows], prefix)

    def _forward(self, rows: Sequence[QuestionRow], prefix: Any = None) -> list[RowOutcome]:
        self.deadline.check_together()
        batch = pad(rows, self.padding)
        with self.model.with_adapters([rows[0].adapter_id]):
            scores = self.model.last_scores(batch, [len(row) for row in rows], prefix)
        tokens, slots = sum(map(len, rows)), batch["input_ids"].numel()
        self.meter.count(forwards=1, tokens=tokens, slots=slots)
        found: list[RowOutcome] = []
        for row, own in zip(rows, scores, strict=True):
            found.append({"labels": own[list(row.labels)]})
        return found
