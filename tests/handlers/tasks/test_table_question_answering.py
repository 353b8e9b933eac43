"""Table question answering: forms of tables, limits, questions in turn and batches."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hf_serve.handlers.errors import WrongConfig
from tests.sentences import Sentence, refused
from tests.serving import Served, explanation_of

Load = Callable[..., Served]
MODE = "table_question_answering"
TABLE = {"Name": ["Ada", "Tom"], "Sings": ["a fine film", "2.5"]}
ROWS = [{"Name": "Ada", "Sings": "a fine film"}, {"Name": "Tom", "Sings": 2.5}]
QUESTIONS = ["Who sings?", "Where does Ada live?", "Is it a fine film?"]


def about(table: Any, query: Any = "Who sings?") -> dict[str, Any]:
    return {"table": table, "query": query}


@pytest.mark.parametrize("table", [ROWS, json.dumps(TABLE), json.dumps(ROWS)])
def test_a_table_is_columns_or_rows_or_the_json_text_of_either(served: Load, table: Any) -> None:
    assert served(MODE).ask(about(table)) == served(MODE).ask(about(TABLE))


def test_a_question_has_two_names(served: Load) -> None:
    named = {"table": TABLE, "question": "Who sings?"}
    assert served(MODE).ask(named) == served(MODE).ask(about(TABLE))


def test_cells_are_those_at_the_coordinates(served: Load) -> None:
    answer = served(MODE).ask(about(ROWS))
    columns = list(TABLE.values())
    assert answer["coordinates"]
    assert answer["cells"] == [columns[column][row] for row, column in answer["coordinates"]]
    assert answer["answer"].endswith(", ".join(answer["cells"]))


def test_several_questions_have_the_answers_of_each(served: Load) -> None:
    model = served(MODE)
    assert model.ask(about(TABLE, QUESTIONS)) == [model.ask(about(TABLE, q)) for q in QUESTIONS]


def test_questions_in_turn_are_read_with_the_answer_before(served: Load) -> None:
    model = served(MODE)
    apart, in_turn = (model.ask(about(TABLE, QUESTIONS), sequential=turn) for turn in (False, True))
    assert in_turn[0] == apart[0]
    assert in_turn != apart
    bodies = [
        {"inputs": about(TABLE, QUESTIONS), "parameters": {"sequential": turn}}
        for turn in (True, False)
    ]
    (_, first), (_, second) = model.post(*bodies)
    assert [first, second] == [in_turn, apart]


@pytest.mark.parametrize(
    ("inputs", "status", "facts"),
    [
        ("Who sings?", 400, ["inputs"]),
        ({"table": TABLE}, 400, []),
        (about(5), 400, ["table"]),
        (about("Ada"), 400, ["table"]),
        (about("[" * 10_000), 400, ["table"]),
        (about({}), 400, ["table"]),
        (about([]), 400, ["table"]),
        (about({"Name": []}), 400, ["table"]),
        (about({"Name": "Ada"}), 400, ["table"]),
        (about({"Name": None}), 400, ["table"]),
        (about({"Name": ["Ada"], "Age": ["1", "2"]}), 400, ["1", "2"]),
        (about([{"Name": "Ada"}, {"Age": 3}]), 400, []),
        (about({"Name": [None]}), 400, ["0"]),
        (about({"Name": [["Ada"]]}), 400, ["0"]),
        (about({"Name": [True]}), 400, ["and"]),
        (about({"Name": ["half \ud83d"]}), 400, []),
        (about({"\ud83d": ["Ada"]}), 400, []),
        (about(TABLE, []), 400, ["query"]),
        (about(TABLE, ["Who?", 5]), 400, ["query[1]"]),
        (about({"Name": ["Ada"] * 2001}), 413, ["2,001", "2,000"]),
        (about({"Name": ["Ada"] * 700}, QUESTIONS), 413, ["2,100"]),
        (about({"Name": ["a" * 7000]}, QUESTIONS), 413, ["20,000"]),
        (about({"Name": ["7"] * 2000}, "1 " * 51), 413, ["102,000"]),
        (about(TABLE, "Ada sings. " * 200), 413, []),
        (about({str(number): ["1"] for number in range(200)}), 413, []),
    ],
)
def test_a_wrong_table_is_refused_beside_others(
    served: Load, inputs: Any, status: int, facts: list[str]
) -> None:
    model, good = served(MODE), {"inputs": about(TABLE)}
    first, bad, last = model.post(good, {"inputs": inputs}, good)
    assert (bad[0], bad[1]["message"]) == (status, Sentence(*facts))
    assert first == last == (200, model.ask(about(TABLE)))


def test_a_table_of_too_many_characters_is_refused(served: Load) -> None:
    for table in ({"Name": ["a" * 40]}, json.dumps({"Name": ["a" * 40]})):
        status, sentence = served(MODE, max_characters=40).refuse(about(table))
        assert status == 413
        assert "this model takes 40" in sentence


def test_a_long_table_loses_its_last_rows_or_is_refused(served: Load) -> None:
    model, long = served(MODE), about({"Name": ["Ada sings"] * 200})
    answer = model.ask(long)
    assert all(row < 128 for row, _ in answer["coordinates"])
    refused = served(MODE, truncation=False).refuse(long)
    for status, sentence in (model.refuse(long, truncation=False), refused):
        assert status == 413
        assert "this model takes 128; send less of them, or set truncation: true" in sentence


def test_numbers_dates_and_odd_texts_are_tables(served: Load) -> None:
    odd = ["1e999", "9" * 400, "30 february 2001", "99/99/9999", "²", "[CLS]", "\x00", "", "nan"]
    answer = served(MODE).ask(about({"": odd, "first": odd[::-1]}, "first may 2001, 1e999"))
    assert answer.keys() == {"answer", "coordinates", "cells", "aggregator"}


def test_without_pandas_the_load_stops_with_the_install_command(
    checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with refused(WrongConfig, "pip install 'pandas<3'"):
        Served(checkpoint(MODE), MODE)


def explain(model: Served, inputs: Any, **parameters: Any) -> tuple[int, Any]:
    ((status, found),) = model.post(
        explanation_of({"inputs": inputs, "parameters": {"granularity": "word", **parameters}})
    )
    return status, found


def test_the_words_behind_the_cells_are_explained(served: Load) -> None:
    status, found = explain(served(MODE), about(TABLE, "Who sings in Paris?"))
    assert status == 200
    texts = ["Who sings in Paris?", "Name", "Sings", "Ada", "a fine film", "Tom", "2.5"]
    assert found["texts"] == texts
    places = dict(zip(found["words"], found["coordinates"], strict=True))
    assert places["who"] is None
    assert places["film"] == [0, 1]
    assert found["target"]["coordinates"]
    assert 0 < found["target"]["score"] <= 1
    assert found["output"] == pytest.approx(found["target"]["score"], abs=1e-5)
    assert found["prediction"] == served(MODE).ask(about(TABLE, "Who sings in Paris?"))


def test_a_cell_and_a_later_question_are_targets(served: Load) -> None:
    model, target = served(MODE), {"query": 1, "coordinates": [[1, 0], [0, 0]]}
    _, found = explain(model, about(TABLE, QUESTIONS), target=target, sequential=True)
    assert found["texts"][0] == QUESTIONS[1]
    assert found["target"]["answer"] == "Tom, Ada"
    method = {"method": "shapley_value_sampling", "n_samples": 2}
    _, found = explain(model, about(TABLE, QUESTIONS), target=target, sequential=True, **method)
    difference = found["output"] - found["baseline_output"]
    assert sum(found["attributions"]) == pytest.approx(difference, abs=1e-4)
    assert found["prediction"] == model.ask(about(TABLE, QUESTIONS), sequential=True)[1]


@pytest.mark.parametrize(
    "target",
    [5, "Ada", [], [5], [[0]], [[2, 0]], [[0, 2]], [[0, True]], {"query": 3}, {"cell": [[0, 0]]}],
)
def test_an_unknown_cell_is_a_bad_request(served: Load, target: Any) -> None:
    status, found = explain(served(MODE), about(TABLE), target=target)
    assert status == 400
    assert found["message"].startswith("target")
