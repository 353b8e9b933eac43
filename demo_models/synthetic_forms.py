"""Forms with a few fields, drawn as images, whose words and boxes are known.

`python -m hf_serve.demo_models.synthetic_forms` writes the sample of document question answering
again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from hf_serve.demo_models.synthetic_images import write_sample
from hf_serve.demo_models.synthetic_text.grammar import Split

WIDTH, HEIGHT = 400, 300
MARGIN, LINE, FONT_SIZE, SPACE = 20, 40, 16, 6
SAMPLE_SEED = "sample"
TITLES = ("Invoice", "Receipt", "Order form", "Delivery note")
NAMES: Mapping[Split, Sequence[str]] = {
    "train": ["Ada", "Tom", "Nina", "Clara", "Max", "Bella", "Paul", "Emma", "Vogel", "Brook"],
    "held_out": ["Otto", "Rosa", "Hugo", "Vera", "Anna", "Leo", "Stone", "Winter"],
}
CITIES: Mapping[Split, Sequence[str]] = {
    "train": ["Paris", "London", "New York", "Berlin", "Rome", "San Diego"],
    "held_out": ["Madrid", "Vienna", "Los Angeles", "Oslo"],
}
MONTHS = ("January", "March", "April", "May", "July", "August", "October", "December")
# The label of each field on a form, and its name in a question.
FIELDS = {
    "Name": "name",
    "Date": "date",
    "City": "city",
    "Total": "total",
    "Number": "number",
    "Phone": "phone",
}
QUESTIONS: Mapping[Split, Sequence[str]] = {
    "train": ["What is the {}?", "Find the {}.", "Which {} is on the form?"],
    "held_out": ["Tell me the {}.", "What {} does the form have?"],
}


@dataclass(frozen=True)
class Form:
    """A form with a question about one of its fields.

    Attributes:
        words: its words in reading order.
        boxes: left, top, right and bottom of each word in thousandths of the page.
        question: the question.
        first: the number of the first word that answers it.
        last: the number of the last word.
    """

    words: list[str]
    boxes: list[list[int]]
    question: str
    first: int
    last: int

    @property
    def answer(self) -> str:
        """The words that answer the question."""
        return " ".join(self.words[self.first : self.last + 1])

    @property
    def word_boxes(self) -> list[Any]:
        """The words with their boxes, as a request has them."""
        return [list(pair) for pair in zip(self.words, self.boxes, strict=True)]


def forms(split: Split, count: int, seed: int | str) -> list[Form]:
    """Write forms, each with a question."""
    rng = Random(f"forms {split} {seed}")
    return [_form(rng, split) for _ in range(count)]


def draw_form(form: Form) -> Image.Image:
    """Return the image of a form."""
    image = Image.new("L", (WIDTH, HEIGHT), 255)
    pen = ImageDraw.Draw(image)
    for word, (left, top, _, _) in zip(form.words, form.boxes, strict=True):
        place = (left * WIDTH / 1000, top * HEIGHT / 1000)
        pen.text(place, word, fill=0, font=ImageFont.load_default(FONT_SIZE))
    return image


def _form(rng: Random, split: Split) -> Form:
    labels = rng.sample(list(FIELDS), rng.randint(3, 5))
    asked = rng.choice(labels)
    lines = [rng.choice(TITLES).split()]
    words: list[str] = []
    boxes: list[list[int]] = []
    first = last = 0
    lines += [[f"{label}:", *_value(rng, split, label).split()] for label in labels]
    for number, line in enumerate(lines):
        if number and labels[number - 1] == asked:
            first, last = len(words) + 1, len(words) + len(line) - 1
        boxes += _boxes(line, MARGIN + rng.randint(0, 60), MARGIN + LINE * number)
        words += line
    question = rng.choice(QUESTIONS[split]).format(FIELDS[asked])
    return Form(words, boxes, question, first, last)


def _value(rng: Random, split: Split, label: str) -> str:
    if label == "Name":
        return " ".join(rng.sample(NAMES[split], 2))
    if label == "Date":
        return f"{rng.randint(1, 28)} {rng.choice(MONTHS)} {rng.randint(1990, 2029)}"
    if label == "City":
        return rng.choice(CITIES[split])
    if label == "Total":
        return f"{rng.randint(1, 99)}.{rng.randint(0, 99):02} {rng.choice(('EUR', 'USD'))}"
    if label == "Number":
        return f"{rng.choice('ABC')}-{rng.randint(100, 999)}"
    return f"0{rng.randint(10, 99)} {rng.randint(1000, 9999)}"


def _boxes(line: Sequence[str], left: float, top: int) -> list[list[int]]:
    font, boxes = ImageFont.load_default(FONT_SIZE), []
    for word in line:
        right = left + font.getlength(word)
        corners = (left / WIDTH, top / HEIGHT, right / WIDTH, (top + FONT_SIZE) / HEIGHT)
        boxes.append([min(1000, int(1000 * corner)) for corner in corners])
        left = right + SPACE
    return boxes


if __name__ == "__main__":
    (form,) = forms("held_out", 1, SAMPLE_SEED)
    write_sample(
        "document_question_answering",
        draw_form(form),
        question=form.question,
        word_boxes=form.word_boxes,
    )
