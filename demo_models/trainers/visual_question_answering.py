"""A small ViLT learns to answer questions about a coloured shape."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

import torch
from PIL import Image
from transformers import BertTokenizer, ViltConfig, ViltForQuestionAnswering, ViltImageProcessorPil

from hf_serve.demo_models.evaluation import mean
from hf_serve.demo_models.processors import Processors
from hf_serve.demo_models.synthetic_images import COLOURS, SHAPES, SIDE, as_base64, draw
from hf_serve.demo_models.trainers.base import Trainer
from hf_serve.demo_models.trainers.image_classification import CONFIG
from hf_serve.demo_models.training import Feature, Plan, forward

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LETTERS = "abcdefghijklmnopqrstuvwxyz?"
ABOUT_COLOUR = ("what colour is it?", "which colour does it have?")
ABOUT_SHAPE = ("what is it?", "which shape is it?")
CHECKS = ("is it a {0}?", "is it {0}?")
ANSWERS = (*COLOURS, *SHAPES, "yes", "no")
POSITIONS = 40
CALIBRATION_ROWS = 200


class Question(NamedTuple):
    """An image with a shape, a question about it, and the answer."""

    image: Image.Image
    text: str
    answer: str


class VisualQuestionAnswering(Trainer):
    """One shape in one colour, with questions about both."""

    plan = Plan(rows=5000, batch=32, rate=1e-3)
    evaluation_rows = 300

    def start(self, seed: int) -> tuple[Any, Any]:
        """Return a ViLT with random weights, its tokenizer and its image processor."""
        tokenizer = words_of([*ABOUT_COLOUR, *ABOUT_SHAPE, *CHECKS, *COLOURS, *SHAPES])
        config = ViltConfig(
            **{**CONFIG, "patch_size": 8},
            vocab_size=len(tokenizer),
            max_position_embeddings=POSITIONS,
            pad_token_id=tokenizer.pad_token_id,
            id2label=dict(enumerate(ANSWERS)),
        )
        images = ViltImageProcessorPil(size={"shortest_edge": SIDE}, size_divisor=8)
        return ViltForQuestionAnswering(config), Processors(tokenizer, images)

    def features(self, tokenizer: Any, rows: int, seed: int) -> list[Feature]:
        """Draw images with questions, and a 1 for the answer among all of them."""
        return [_labelled(tokenizer, each) for each in questions(rows, f"train {seed}")]

    def evaluate(self, model: Any, tokenizer: Any, rows: int, seed: int) -> dict[str, float]:
        """Return the share of questions with the right answer."""
        held_out = questions(rows, f"held out {seed}")
        found = forward(model, [_encoded(tokenizer, each) for each in held_out])
        pairs = zip(found, held_out, strict=True)
        return {
            "accuracy": mean(
                ANSWERS[int(out["logits"].argmax())] == each.answer for out, each in pairs
            )
        }

    def calibration_inputs(self, rows: int, seed: int) -> list[Any]:
        """Draw images with questions."""
        return [
            {"image": as_base64(each.image), "question": each.text}
            for each in questions(min(rows, CALIBRATION_ROWS), f"calibration {seed}")
        ]


def words_of(texts: Sequence[str]) -> BertTokenizer:
    """Return a tokenizer of the words of texts, and of the letters of others."""
    words = {word for text in texts for word in text.replace("?", " ? ").split() if "{" not in word}
    entries = [*SPECIAL, *sorted(words | {*LETTERS, *(f"##{each}" for each in LETTERS)})]
    vocabulary = {entry: index for index, entry in enumerate(entries)}
    return BertTokenizer(vocab=vocabulary, do_lower_case=True, model_max_length=POSITIONS)


def questions(count: int, seed: str) -> list[Question]:
    """Draw images with a question each; half of the checks are true."""
    rng = Random(seed)
    return [_question(rng) for _ in range(count)]


def _question(rng: Random) -> Question:
    scene = draw(rng)
    colour, shape = scene.label.split()
    kind = rng.randrange(4)
    if kind == 0:
        return Question(scene.image, rng.choice(ABOUT_COLOUR), colour)
    if kind == 1:
        return Question(scene.image, rng.choice(ABOUT_SHAPE), shape)
    (names, right, check) = (
        (SHAPES, shape, CHECKS[0]) if kind == 2 else (COLOURS, colour, CHECKS[1])
    )
    asked = rng.choice([right, rng.choice([each for each in names if each != right])])
    return Question(scene.image, check.format(asked), "yes" if asked == right else "no")


def _encoded(processors: Any, question: Question) -> Feature:
    pixels = processors.images(images=question.image, return_tensors="pt")
    return {**processors.tokenizer(question.text), **{name: pixels[name][0] for name in pixels}}


def _labelled(processors: Any, question: Question) -> Feature:
    target = torch.zeros(len(ANSWERS))
    target[ANSWERS.index(question.answer)] = 1.0
    return {**_encoded(processors, question), "labels": target}


TRAINER = VisualQuestionAnswering()
