"""Tables of requests: the meaning of their columns, and the columns of results."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hf_serve.handlers import tasks
from hf_serve.handlers.config.handler_section import modes
from tests.handlers.protocols.test_sagemaker import (
    CSV,
    LINES,
    MODE,
    QUESTIONS,
    Model,
    ask_table,
    call,
    cells,
    every_mode,
    table,
)
from tests.modes import cases, each_mode
from tests.modes.question_answering import VOICE
from tests.samples import FINE, ODD
from tests.sentences import Sentence
from tests.serving import differences, read_json


@every_mode
def test_each_row_of_a_table_is_answered_as_an_item_of_a_list(served: Model, mode: str) -> None:
    model = served(mode)
    rows = cases(mode).table
    found = ask_table(model, rows)
    assert not differences(found, model.ask(rows), 1e-5)
    assert not differences(ask_table(model, rows[:1]), found[:1], 1e-5)


def test_a_bad_row_has_its_error_in_its_place(served: Model) -> None:
    model = served(MODE)
    body = f'"{FINE}"\r\na,b,c\r\n"a" b\r\n"",\r\n"{ODD}"\r\n'
    fine, columns, quotes, empty, odd = read_json(call(model, CSV, body).body)
    assert not differences([fine, odd], model.ask([FINE, ODD]), 1e-5)
    assert columns["message"] == Sentence("3", "text_pair")
    assert quotes["message"].startswith("Line 3 is not CSV: ")
    assert empty["code"] == 400
    first, *errors, _ = cells(call(model, CSV, body, Accept=CSV))
    assert first[0] == model.ask(FINE)[0]["label"]
    assert [json.loads(cell) for (cell,) in errors] == [columns, quotes, empty]


@pytest.mark.parametrize(
    ("mode", "header", "rows", "inputs"),
    [
        (MODE, "inputs", [[FINE], ["dull"]], [FINE, "dull"]),
        (MODE, "text", [[FINE]], [FINE]),
        (MODE, "text_pair, text", [[ODD, FINE]], [{"text": FINE, "text_pair": ODD}]),
        ("token_classification", "prompt", [[FINE]], [FINE]),
        (QUESTIONS, "context,question", [list(VOICE.values())[::-1]], [VOICE]),
        ("text_generation", "prompt", [["Ada"]], ["Ada"]),
    ],
)
def test_a_header_names_the_columns(
    served: Model, mode: str, header: str, rows: Any, inputs: Any
) -> None:
    model = served(mode)
    lines = [header, *(table([dict(enumerate(row))]).strip() for row in rows)]
    answer = call(model, CSV, "\ufeff" + "\n".join(lines))
    assert not differences(read_json(answer.body), model.ask(inputs), 1e-5)


def test_a_first_line_of_other_words_is_not_a_header(served: Model) -> None:
    assert len(ask_table(served(MODE), ["label", FINE])) == 2


def test_a_header_sets_the_columns_of_every_row(served: Model) -> None:
    _, wrong = read_json(call(served(MODE), CSV, "text\nfine\nfine,dull\n").body)
    assert wrong["message"] == Sentence("2")


def test_the_columns_of_results_are_those_of_the_pipelines() -> None:
    assert tasks.get(MODE).description.wire.result_columns == ("label", "score")
    assert tasks.get(QUESTIONS).description.wire.result_columns == ("answer", "score")
    assert tasks.get("text_generation").description.wire.result_columns == ("generated_text",)


@pytest.mark.parametrize(
    "mode", each_mode(mode for mode in modes() if tasks.get(mode).description.wire.result_columns)
)
def test_a_table_is_answered_with_a_table_if_accepted(served: Model, mode: str) -> None:
    names, model, rows = (
        tasks.get(mode).description.wire.result_columns,
        served(mode),
        cases(mode).table,
    )
    found = cells(call(model, CSV, table(rows), Accept=CSV))
    best = [each[0] if isinstance(each, list) else each for each in model.ask(rows)]
    assert [row[0] for row in found] == [each[names[0]] for each in best]
    scores = [[float(cell) for cell in row[1:]] for row in found]
    expected = [[float(each[name]) for name in names[1:]] for each in best]
    assert not differences(scores, expected, 1e-5)


def test_a_table_contains_tokens_as_json(served: Model) -> None:
    model = served("token_classification")
    found = cells(call(model, CSV, table([FINE, ODD]), Accept=CSV))
    assert not differences([json.loads(cell) for (cell,) in found], model.ask([FINE, ODD]), 1e-5)


def test_a_table_contains_the_best_of_several(served: Model) -> None:
    model = served(MODE)
    body = json.dumps({"inputs": FINE, "parameters": {"top_k": 3}})
    ((label, _),) = cells(call(model, LINES, body, Accept=CSV))
    assert label == model.ask(FINE)[0]["label"]
