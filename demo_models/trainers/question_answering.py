"""MiniLM learns to find the answer in a passage."""

from __future__ import annotations

import string
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForQuestionAnswering, PreTrainedModel, PreTrainedTokenizerBase

from hf_serve.demo_models.evaluation import f1, mean
from hf_serve.demo_models.minilm import load_model, load_tokenizer
from hf_serve.demo_models.shipped import ShippedTrainer
from hf_serve.demo_models.synthetic_text.grammar import Split
from hf_serve.demo_models.synthetic_text.passages import asked, mixed_questions, unanswerable
from hf_serve.demo_models.synthetic_text.questions import Question, questions
from hf_serve.demo_models.training import Feature, Plan, forward

Offsets = list[tuple[int, int] | None]


class QuestionAnswering(ShippedTrainer):
    """The answer's first and last token; [CLS] for both if the context does not have it."""

    plan = Plan(rows=3600, batch=24, rate=3e-4)
    evaluation_rows = 400

    def start(self, seed: int) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        """Return MiniLM with a new head for starts and ends."""
        return load_model(AutoModelForQuestionAnswering), load_tokenizer()

    def features(self, tokenizer: PreTrainedTokenizerBase, rows: int, seed: int) -> list[Feature]:
        """Write questions with the answer's tokens."""
        return [_with_answer(tokenizer, row) for row in mixed_questions(rows, seed)]

    def measure(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        split: Split,
        rows: int,
        seed: int,
    ) -> dict[str, float]:
        """Compare answers: the words that they share, and as a whole.

        The questions are about passages that are written by hand, or come from the grammar.
        """
        written = [question for _, question in asked(split)] + unanswerable(split)
        shared, exact = _compare(model, tokenizer, written)
        generated, _ = _compare(model, tokenizer, questions(split, rows, seed))
        return {"F1": shared, "F1 on the grammar": generated, "exact match": exact}

    def calibration_inputs(self, rows: int, seed: int) -> list[Any]:
        """Write questions that are not among the training rows."""
        return [
            {"question": row.question, "context": row.context}
            for row in questions("held_out", rows, seed)
        ]


TRAINER = QuestionAnswering()


def _compare(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, held_out: list[Question]
) -> tuple[float, float]:
    """Return the F1 of the answers' words, and the share of answers that are exactly right."""
    encoded = [_encode(tokenizer, row) for row in held_out]
    outputs = forward(model, [features for features, _ in encoded])
    found = []
    for row, output, (_, offsets) in zip(held_out, outputs, encoded, strict=True):
        starts, ends = output["start_logits"], output["end_logits"]
        found.append(_answer(row.context, offsets, starts, ends))
    pairs = list(zip(found, held_out, strict=True))
    return (
        mean(
            max(f1([_words(answer)], [_words(truth)]) for truth in _right(row))
            for answer, row in pairs
        ),
        mean(
            any(_words(answer) == _words(truth) for truth in _right(row)) for answer, row in pairs
        ),
    )


def _right(row: Question) -> tuple[str, ...]:
    return (row.answer, *row.others)


def _words(answer: str) -> list[str]:
    """The words that count, as in SQuAD: without articles, punctuation and case.

    No answer counts as a word, which is equal to another "no answer" only.
    """
    plain = "".join(letter for letter in answer.lower() if letter not in string.punctuation)
    return [word for word in plain.split() if word not in ("a", "an", "the")] or [""]


def _encode(tokenizer: PreTrainedTokenizerBase, row: Question) -> tuple[Feature, Offsets]:
    """Return the model's inputs and each token's characters; None outside of the context."""
    encoding = tokenizer(row.question, row.context, return_offsets_mapping=True)
    parts = encoding.sequence_ids()
    encoded = dict(encoding)
    offsets = zip(encoded.pop("offset_mapping"), parts, strict=True)
    return encoded, [offset if part == 1 else None for offset, part in offsets]


def _with_answer(tokenizer: PreTrainedTokenizerBase, row: Question) -> Feature:
    encoded, offsets = _encode(tokenizer, row)
    tokens = [
        token
        for token, offset in enumerate(offsets)
        if offset and row.start <= offset[0] and offset[1] <= row.end
    ] or [0]
    return {**encoded, "start_positions": tokens[0], "end_positions": tokens[-1]}


def _answer(context: str, offsets: Offsets, starts: Tensor, ends: Tensor) -> str:
    """The characters of the best pair of start and end in the context; empty if [CLS] is better."""
    allowed = torch.tensor([offset is not None for offset in offsets])
    allowed = (allowed[:, None] & allowed[None, :]).triu()
    allowed[0, 0] = True
    scores = starts[: len(offsets), None] + ends[None, : len(offsets)]
    best = int(scores.masked_fill(~allowed, -torch.inf).argmax())
    first, last = (offsets[token] for token in divmod(best, len(offsets)))
    return context[first[0] : last[1]] if first and last else ""
