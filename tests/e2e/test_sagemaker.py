"""SageMaker's JSON Lines and CSV on its routes, sent with requests.

`/invocations` goes to a server's only model; if there are several, `model_name` names one, and
`/models/<model>/invoke`, the route of SageMaker's multi-model endpoints, always does.
"""

from __future__ import annotations

import csv
import json
from io import StringIO
from typing import Any

import pytest

from hf_serve.handlers import tasks
from hf_serve.handlers.types.model_info import TEXT_COLUMN
from hf_serve.scripts.serving.server import Server
from tests.e2e.asking import ask_json
from tests.e2e.clients import run_client
from tests.e2e.served import served_modes
from tests.modes import cases
from tests.serving import differences

LINES, CSV, JSON = "application/jsonlines", "text/csv", "application/json"
TYPE, ACCEPT = {"content_type": LINES}, {"accept": CSV}
MODE = "sequence_classification"


def items_of(mode: str) -> list[Any]:
    """Return two requests of a mode, each with parameters."""
    first, second = cases(mode).inputs[:2]
    return [
        {"inputs": first, "parameters": dict(cases(mode).brief)},
        {"inputs": second, "parameters": cases(mode).parameters[1]},
    ]


def lines_of(items: list[Any]) -> str:
    return "".join(json.dumps(item, ensure_ascii=False) + "\n" for item in items)


def table_of(mode: str, inputs: list[Any]) -> str:
    """Return inputs as a table with a header."""
    stream, names = StringIO(), tasks.get(mode).description.wire.input_columns[0]
    if names == TEXT_COLUMN:
        csv.writer(stream).writerows([["inputs"], *([each] for each in inputs)])
    else:
        csv.writer(stream).writerows([names, *([each[name] for name in names] for each in inputs)])
    return stream.getvalue()


def texts_of(mode: str) -> list[Any]:
    """Return inputs that fit into a table of one layout."""
    texts = tasks.get(mode).description.wire.input_columns[0] == TEXT_COLUMN
    return [each for each in cases(mode).table if isinstance(each, str) == texts][-2:]


def expected(server: Server, mode: str, body: Any) -> Any:
    """Return the answer of the Hugging Face protocol."""
    return ask_json(server, f"/predictions/{mode}", body).json()


@pytest.fixture(scope="module")
def found(server: Server) -> Any:
    """The answers to the client: lines and tables of each mode, one and several, then mistakes."""
    calls: list[Any] = []
    for mode in served_modes():
        for count in (1, 2):
            lines, table = lines_of(items_of(mode)[:count]), table_of(mode, texts_of(mode)[:count])
            path = f"/invocations?model_name={mode}"
            calls += [
                {"path": path, "body": lines, "content_type": LINES},
                {"path": path, "body": table, "content_type": CSV},
                {"path": f"/models/{mode}/invoke", "body": table, "content_type": CSV, **ACCEPT},
            ]
    mistakes = ["{\n", '{"inputs": "A film."}\n{\n"A film."\n', '"A film."\n' * 129]
    calls += [{"path": f"/predictions/{MODE}", "body": each, **TYPE} for each in mistakes]
    answers = iter(run_client("requests_client", base_url=server.inference_url, calls=calls))
    responses = {
        mode: [[next(answers) for _ in range(3)] for _ in (1, 2)] for mode in served_modes()
    }
    return responses | {"mistakes": list(answers)}


@pytest.mark.parametrize("mode", served_modes())
def test_each_line_is_answered_as_a_single_request(server: Server, found: Any, mode: str) -> None:
    right = [expected(server, mode, item) for item in items_of(mode)]
    for count, (answer, _, _) in enumerate(found[mode], start=1):
        assert (answer["status"], answer["type"]) == (200, LINES), answer["text"]
        lines = [json.loads(line) for line in answer["text"].split("\n")[:-1]]
        assert not differences(lines, right[:count], 2e-2)


@pytest.mark.parametrize("mode", served_modes())
def test_each_row_of_a_table_is_answered(server: Server, found: Any, mode: str) -> None:
    for count, (_, answer, _) in enumerate(found[mode], start=1):
        right = expected(server, mode, {"inputs": texts_of(mode)[:count]})
        assert (answer["status"], answer["type"]) == (200, JSON), answer["text"]
        assert not differences(json.loads(answer["text"]), right, 1e-3)


@pytest.mark.parametrize("mode", served_modes())
def test_a_table_is_answered_with_a_table(found: Any, mode: str) -> None:
    for count, (_, listed, answer) in enumerate(found[mode], start=1):
        assert (answer["status"], answer["type"]) == (200, f"{CSV}; charset=utf-8"), answer["text"]
        rows = list(csv.reader(StringIO(answer["text"], newline=""), strict=True))
        assert len(rows) == count
        for row, right in zip(rows, json.loads(listed["text"]), strict=True):
            assert not differences(result_in(mode, row), columns_of(mode, right), 1e-3)


def result_in(mode: str, row: list[str]) -> list[Any]:
    """Return the columns of a row; a result without columns is JSON in the only one."""
    return (
        row
        if tasks.get(mode).description.wire.result_columns
        else [json.loads(cell) for cell in row]
    )


def columns_of(mode: str, result: Any) -> list[Any]:
    """Return the columns of a result in a table."""
    if names := tasks.get(mode).description.wire.result_columns:
        best = result[0] if isinstance(result, list) else result
        return [str(best[name]) for name in names]
    return [result]


def test_a_bad_line_has_its_error_in_its_place(found: Any) -> None:
    broken, mixed, many = found["mistakes"]
    assert (broken["status"], broken["type"], many["status"]) == (400, JSON, 413)
    assert json.loads(broken["text"])["message"].startswith("The line is not JSON: ")
    fine, wrong, same = map(json.loads, mixed["text"].splitlines())
    assert (mixed["status"], wrong["code"]) == (200, 400)
    assert not differences(fine, same, 1e-3)


def test_a_request_to_a_server_of_several_models_must_name_one(server: Server) -> None:
    answer = ask_json(server, "/invocations", {"inputs": "A film."})
    assert answer.status_code == 400
    assert "model_name" in answer.text
