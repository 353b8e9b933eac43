"""A LayoutLM with the layers of MiniLM learns to find the fields of forms."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import (
    BertModel,
    LayoutLMConfig,
    LayoutLMForQuestionAnswering,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from hf_serve.demo_models.evaluation import mean
from hf_serve.demo_models.minilm import FROZEN_LAYERS, SIZES, load_tokenizer, minilm
from hf_serve.demo_models.synthetic_forms import Form, forms
from hf_serve.demo_models.synthetic_images import CALIBRATION_ROWS
from hf_serve.demo_models.trainers.base import Trainer
from hf_serve.demo_models.training import Feature, Plan, forward

WIDTH = 64
# The tables of what a box adds to a token.
BOX_TABLES = ("x", "y", "h", "w")


class DocumentQuestionAnswering(Trainer):
    """Forms of three to five fields, with a question about one of them."""

    plan = Plan(rows=1600, batch=16, rate=3e-4)
    evaluation_rows = 300

    def start(self, seed: int) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        """Return a LayoutLM with MiniLM's layers, to which boxes add nothing yet."""
        bert = BertModel.from_pretrained(minilm())
        sizes = bert.config.to_dict()
        model = LayoutLMForQuestionAnswering(
            LayoutLMConfig(**{name: sizes[name] for name in SIZES})
        )
        model.layoutlm.load_state_dict(bert.state_dict(), strict=False)
        embeddings = model.layoutlm.embeddings
        with torch.no_grad():
            for name in BOX_TABLES:
                getattr(embeddings, f"{name}_position_embeddings").weight.zero_()
        for part in [embeddings.word_embeddings, *model.layoutlm.encoder.layer[:FROZEN_LAYERS]]:
            part.requires_grad_(False)
        return model, load_tokenizer()

    def features(self, tokenizer: PreTrainedTokenizerBase, rows: int, seed: int) -> list[Feature]:
        """Write forms, with the first and last token of the answer to a question."""
        return [_labelled(tokenizer, form) for form in forms("train", rows, seed)]

    def evaluate(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, rows: int, seed: int
    ) -> dict[str, float]:
        """Return how often exactly the right words are found."""
        held_out = forms("held_out", rows, seed)
        encoded = [_encode(tokenizer, form) for form in held_out]
        outputs = forward(model, [features for features, _ in encoded])
        found = [
            _words(numbers, output["start_logits"], output["end_logits"])
            for output, (_, numbers) in zip(outputs, encoded, strict=True)
        ]
        right = zip(found, held_out, strict=True)
        return {"exact match": mean(words == (form.first, form.last) for words, form in right)}

    def calibration_inputs(self, rows: int, seed: int) -> list[Any]:
        """Write forms that are not among the training rows, without their images."""
        return [
            {"question": form.question, "word_boxes": form.word_boxes}
            for form in forms("held_out", min(rows, CALIBRATION_ROWS), seed)
        ]


TRAINER = DocumentQuestionAnswering()


def _encode(tokenizer: PreTrainedTokenizerBase, form: Form) -> tuple[Feature, list[int | None]]:
    """Return the model's inputs, and the number of the form's word that each token is of."""
    encoding = tokenizer(
        form.question.split(),
        form.words,
        is_split_into_words=True,
        padding="max_length",
        max_length=WIDTH,
        truncation="only_second",
    )
    places = zip(encoding.word_ids(), encoding.sequence_ids(), strict=True)
    numbers = [word if part == 1 else None for word, part in places]
    corners = {tokenizer.sep_token_id: [1000] * 4}
    boxes = [
        corners.get(token, [0] * 4) if number is None else form.boxes[number]
        for token, number in zip(encoding["input_ids"], numbers, strict=True)
    ]
    return {**encoding, "bbox": torch.tensor(boxes)}, numbers


def _labelled(tokenizer: PreTrainedTokenizerBase, form: Form) -> Feature:
    features, numbers = _encode(tokenizer, form)
    tokens = [
        token
        for token, number in enumerate(numbers)
        if number is not None and form.first <= number <= form.last
    ]
    return {**features, "start_positions": tokens[0], "end_positions": tokens[-1]}


def _words(
    numbers: list[int | None], starts: Tensor, ends: Tensor
) -> tuple[int | None, int | None]:
    """Return the first and the last word of the best pair of start and end on the form."""
    on_form = torch.tensor([number is not None for number in numbers])
    allowed = (on_form[:, None] & on_form[None, :]).triu()
    scores = (starts[:, None] + ends[None, :]).masked_fill(~allowed, -torch.inf)
    first, last = divmod(int(scores.argmax()), len(numbers))
    return numbers[first], numbers[last]
