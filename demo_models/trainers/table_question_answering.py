"""A TAPAS model with the layers of MiniLM learns to find the highest and the lowest number."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import torch
from transformers import (
    BertModel,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TapasConfig,
    TapasForQuestionAnswering,
    TapasTokenizer,
)

from hf_serve.demo_models.evaluation import mean
from hf_serve.demo_models.minilm import FROZEN_LAYERS, SIZES, load_tokenizer, minilm
from hf_serve.demo_models.synthetic_text.grammar import Split
from hf_serve.demo_models.trainers.base import Trainer
from hf_serve.demo_models.training import Feature, Plan, forward
from hf_serve.handlers.tasks.table_question_answering import (
    TOKEN_TYPES,
    Table,
    cell_probabilities,
    data_frame,
)

NAMES: Mapping[Split, Sequence[str]] = {
    "train": ["Ada", "Tom", "Nina", "Clara", "Max", "Bella", "Paul", "Emma"],
    "held_out": ["Otto", "Rosa", "Hugo", "Vera", "Anna", "Leo"],
}
# The values of each column.
COLUMNS: Mapping[Split, Mapping[str, Sequence[int]]] = {
    "train": {
        "Age": range(18, 70),
        "Height": range(150, 200),
        "Points": range(1, 100),
        "Salary": range(20, 90),
    },
    "held_out": {"Weight": range(50, 100), "Price": range(1, 100), "Score": range(1, 50)},
}
PATTERNS: Mapping[Split, Sequence[str]] = {
    "train": ["What is the {0} {1}?", "Which {1} is the {0}?", "Find the {0} {1}."],
    "held_out": ["How much is the {0} {1}?", "Show me the {0} {1}."],
}
HIGHEST, LOWEST = "highest", "lowest"
WIDTH = 32


class Quiz(NamedTuple):
    """A table, a question, and the row and column of the cell that answers it."""

    table: Table
    question: str
    place: tuple[int, int]


class TableQuestionAnswering(Trainer):
    """Small tables of people, with questions about the extremes of a column."""

    plan = Plan(rows=800, batch=16, rate=3e-4)
    evaluation_rows = 150

    def start(self, seed: int) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        """Return a TAPAS model with MiniLM's layers, and tokens in the order of the rows."""
        bert = BertModel.from_pretrained(minilm())
        sizes = bert.config.to_dict()
        config = TapasConfig(
            **{name: sizes[name] for name in SIZES},
            reset_position_index_per_cell=False,
            positive_label_weight=1.0,
        )
        model = TapasForQuestionAnswering(config)
        model.tapas.load_state_dict(bert.state_dict(), strict=False)
        tokenizer = _tokenizer()
        _start_token_types(model, bert, tokenizer)
        for part in [model.tapas.embeddings, *model.tapas.encoder.layer[:FROZEN_LAYERS]]:
            part.requires_grad_(False)
        return model, tokenizer

    def features(self, tokenizer: PreTrainedTokenizerBase, rows: int, seed: int) -> list[Feature]:
        """Write questions about tables, with the tokens of the cells that answer them."""
        return [_labelled(tokenizer, quiz) for quiz in _quizzes("train", rows, seed)]

    def evaluate(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, rows: int, seed: int
    ) -> dict[str, float]:
        """Return how often exactly the right cell is selected."""
        held_out = _quizzes("held_out", rows, seed)
        encoded = [_encoded(tokenizer, quiz) for quiz in held_out]
        found = [
            cell_probabilities(row, output["logits"].numpy())
            for row, output in zip(encoded, forward(model, encoded), strict=True)
        ]
        selected = [{place for place, value in each.items() if value > 0.5} for each in found]
        right = zip(selected, held_out, strict=True)
        return {"accuracy": mean(places == {quiz.place} for places, quiz in right)}

    def calibration_inputs(self, rows: int, seed: int) -> list[Any]:
        """Write tables and questions that are not among the training rows."""
        return [
            {
                "table": dict(zip(quiz.table.names, quiz.table.columns, strict=True)),
                "query": quiz.question,
            }
            for quiz in _quizzes("held_out", rows, seed)
        ]


def _start_token_types(model: TapasForQuestionAnswering, bert: BertModel, words: Any) -> None:
    """Add what MiniLM adds to each token, and to the extremes of a column the words for them."""
    embeddings = model.tapas.embeddings
    with torch.no_grad():
        for number in range(TOKEN_TYPES):
            getattr(embeddings, f"token_type_embeddings_{number}").weight.zero_()
        embeddings.token_type_embeddings_0.weight += bert.embeddings.token_type_embeddings.weight[0]
        for ranks, word in (
            (embeddings.token_type_embeddings_4, LOWEST),
            (embeddings.token_type_embeddings_5, HIGHEST),
        ):
            number = words.convert_tokens_to_ids(word)
            ranks.weight[1] = bert.embeddings.word_embeddings.weight[number]


def _quizzes(split: Split, count: int, seed: int) -> list[Quiz]:
    rng = Random(f"tables {split} {seed}")
    return [_quiz(rng, split) for _ in range(count)]


def _quiz(rng: Random, split: Split) -> Quiz:
    people = rng.sample(NAMES[split], rng.randint(2, 3))
    chosen = rng.sample(list(COLUMNS[split]), rng.randint(1, 2))
    values = {name: rng.sample(COLUMNS[split][name], k=len(people)) for name in chosen}
    column, extreme = rng.choice(chosen), rng.choice([HIGHEST, LOWEST])
    pick = max if extreme == HIGHEST else min
    row = values[column].index(pick(values[column]))
    question = rng.choice(PATTERNS[split]).format(extreme, column.lower())
    names, cells = ["Name", *chosen], [list(map(str, each)) for each in values.values()]
    return Quiz(Table(names, [people, *cells]), question, (row, names.index(column)))


def _tokenizer() -> PreTrainedTokenizerBase:
    """Return a tokenizer of tables with MiniLM's vocabulary; an unused token is [EMPTY]."""
    words = sorted(load_tokenizer().get_vocab().items(), key=lambda item: item[1])
    text = "\n".join("[EMPTY]" if word == "[unused0]" else word for word, _ in words)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vocab.txt"
        path.write_text(text, encoding="utf-8")
        tokenizer: PreTrainedTokenizerBase = TapasTokenizer(str(path), model_max_length=512)
    return tokenizer


def _encoded(tokenizer: Any, quiz: Quiz) -> Feature:
    encoding = tokenizer(
        data_frame(quiz.table), quiz.question, padding="max_length", max_length=WIDTH
    )
    return dict(encoding)


def _labelled(tokenizer: Any, quiz: Quiz) -> Feature:
    feature = _encoded(tokenizer, quiz)
    row, column = quiz.place
    labels = [int(types[:3] == [1, column + 1, row + 1]) for types in feature["token_type_ids"]]
    return {**feature, "labels": labels}


TRAINER = TableQuestionAnswering()
