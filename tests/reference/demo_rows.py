"""Inputs of the pipelines of transformers 4 with the demo models: plain English sentences."""

from __future__ import annotations

from itertools import product
from typing import Any

from tests.reference.rows import PipelineCall

REVIEWS = (
    "The soup was wonderful and the waiter was friendly.",
    "This is the worst hotel I have ever had.",
    "I loved the film, it is brilliant!",
    "The room was dirty and the staff were rude. We paid by card.",
    "What a lovely film!",
    "I would never recommend this phone to anyone.",
    "It is not worth the money, the battery is terrible.",
    "A beautiful story with excellent actors. I would come back just for the music.",
)
SENTENCES = (
    "Maria Lopez works for Siemens in Berlin.",
    "Ada Brown lives in Paris and studied in London.",
    "The German minister met John Smith in Rome on Monday.",
    "Tom Miller, the director of Nokia, said in Helsinki that sales fell.",
    "My sister Anna flew from Madrid to Vienna last June.",
    "It rained all day, and nobody came.",
)
PASSAGE = (
    "Nokia was founded by Fredrik Idestam in 1865. It is based in Espoo and has 500 employees. "
    "It is well known for telephones."
)
BIRTH = "Maria Lopez was born in Madrid in 1921. She studied music in Vienna and became a teacher."
QUESTIONS = (
    ("Who plays the piano?", "On Friday Nina Brown plays the piano in the old town hall."),
    ("Who founded Nokia?", PASSAGE),
    ("Where is Nokia based?", PASSAGE),
    ("How many people work for Nokia?", PASSAGE),
    ("When was Nokia founded?", PASSAGE),
    ("Where was Maria Lopez born?", BIRTH),
    ("What did Maria Lopez study?", BIRTH),
    ("When was Maria Lopez born?", f"{BIRTH} {'We paid by card. ' * 150}"),
)
SETTINGS: tuple[dict[str, Any], ...] = ({}, {"handle_impossible_answer": True}, {"top_k": 2})

DEMO_CASES: dict[str, list[PipelineCall]] = {
    "sequence_classification": [
        *((text, {}) for text in REVIEWS),
        *((text, {"top_k": None}) for text in REVIEWS),
        ({"text": REVIEWS[0], "text_pair": REVIEWS[2]}, {"top_k": 1}),
    ],
    "token_classification": [
        (text, {"aggregation_strategy": strategy})
        for text, strategy in product(SENTENCES, ("none", "simple", "first", "average", "max"))
    ],
    "question_answering": [
        ({"question": question, "context": context}, given)
        for (question, context), given in product(QUESTIONS, SETTINGS)
    ],
}
