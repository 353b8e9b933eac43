"""JSON Lines and CSV, as SageMaker's endpoints and batch transform send them."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from io import StringIO
from typing import Any

import pytest

from hf_serve.handlers.http.request import HttpRequest
from hf_serve.handlers.http.response import HttpResponse
from hf_serve.handlers.protocols.result_formats import LINES_TYPES
from hf_serve.handlers.telemetry.metrics import Meter
from tests.modes import each_mode
from tests.modes.question_answering import VOICE
from tests.samples import FINE, INPUTS, ODD, PARAMETERS
from tests.sentences import Sentence
from tests.serving import Served, differences, explanation_of, read_json

Model = Callable[..., Served]
LINES, CSV, JSON = "application/jsonlines", "text/csv", "application/json"
MODE, QUESTIONS = "sequence_classification", "question_answering"
every_mode = pytest.mark.parametrize("mode", each_mode())


def call(model: Served, kind: str, body: str | bytes, **headers: str) -> HttpResponse:
    """Return the answer to a body of a type; TorchServe decodes some types."""
    (answer,) = model.dispatcher.dispatch([request_of(kind, body, **headers)], Meter())
    return answer


def request_of(kind: str, body: str | bytes, **headers: str) -> HttpRequest:
    raw = body.encode() if isinstance(body, str) and not kind.startswith("text") else body
    return HttpRequest({"body": raw}, {"content-type": kind, **headers})


def ask_lines(model: Served, *items: Any, **headers: str) -> list[Any]:
    """Return the answers to items sent as lines."""
    body = "".join(json.dumps(item, ensure_ascii=False) + "\n" for item in items)
    answer = call(model, LINES, body, **headers)
    assert (answer.status, answer.content_type) == (200, LINES), answer.body
    lines = answer.body.decode().split("\n")
    assert lines.pop() == ""
    return [read_json(line.encode()) for line in lines]


def ask_table(model: Served, rows: Sequence[Any], **headers: str) -> list[Any]:
    """Return the answers to the rows of a table."""
    answer = call(model, CSV, table(rows), **headers)
    assert (answer.status, answer.content_type) == (200, JSON), answer.body
    return list(read_json(answer.body))


def cells(answer: HttpResponse) -> list[list[str]]:
    """Return the rows of a table in an answer."""
    assert (answer.status, answer.content_type) == (200, f"{CSV}; charset=utf-8")
    return list(csv.reader(StringIO(answer.body.decode(), newline=""), strict=True))


def table(rows: Sequence[Any]) -> str:
    stream = StringIO()
    values = [list(row.values()) if isinstance(row, dict) else [row] for row in rows]
    csv.writer(stream).writerows(values)
    return stream.getvalue()


@every_mode
def test_each_line_is_answered_as_a_single_request(served: Model, mode: str) -> None:
    model, given = served(mode), PARAMETERS[mode]
    items = [
        {"inputs": inputs, "parameters": given[number % len(given)]}
        for number, inputs in enumerate(INPUTS[mode])
    ]
    found = ask_lines(model, *items)
    assert not differences(found, [model.post(item)[0][1] for item in items], 1e-5)
    assert not differences(ask_lines(model, items[0]), found[:1], 1e-5)


@pytest.mark.parametrize(
    ("mode", "line"),
    [
        (MODE, FINE),
        (MODE, {"text": FINE}),
        (MODE, {"text": FINE, "target": 1}),
        (MODE, {"features": [FINE]}),
        (QUESTIONS, VOICE),
        (QUESTIONS, {"features": [VOICE["question"], VOICE["context"]]}),
    ],
)
def test_a_line_may_have_other_forms(served: Model, mode: str, line: Any) -> None:
    model = served(mode)
    expected = model.ask(FINE if mode == MODE else VOICE)
    assert not differences(ask_lines(model, line), [expected], 1e-5)


@pytest.mark.parametrize(
    ("mode", "header"),
    [(MODE, "inputs,id"), (MODE, "id, text"), (MODE, "text,text"), (QUESTIONS, "question,text")],
)
def test_a_header_with_other_columns_is_refused(served: Model, mode: str, header: str) -> None:
    answer = call(served(mode), CSV, f"{header}\r\nWho sings?,Nina sings.\r\n")
    message = read_json(answer.body)["message"]
    assert (answer.status, message) == (400, Sentence("header", header, "text"))


def test_a_first_row_of_texts_is_no_header(served: Model) -> None:
    rows = "The text,inputs\r\nfine,dull\r\n"
    assert len(read_json(call(served(MODE), CSV, rows).body)) == 2


@pytest.mark.parametrize("kind", LINES_TYPES)
def test_every_content_type_of_json_lines_is_accepted(served: Model, kind: str) -> None:
    model = served(MODE)
    answer = call(model, f"{kind}; charset=utf-8", f'\r\n"{FINE}"\r\n \n"{ODD}"', Accept="*/*")
    assert answer.content_type == LINES
    lines = [json.loads(line) for line in answer.body.splitlines()]
    assert not differences(lines, [model.ask(FINE), model.ask(ODD)], 1e-5)


def test_a_line_with_a_list_of_inputs_is_answered_with_a_list(served: Model) -> None:
    model = served(MODE)
    items = {"inputs": [FINE, ODD], "parameters": {"top_k": 2}}, {"inputs": ["dull"]}, FINE
    several, one, alone = ask_lines(model, *items)
    assert not differences(several, model.ask([FINE, ODD], top_k=2), 1e-5)
    assert not differences(one, model.ask(["dull"]), 1e-5)
    assert not differences(alone, model.ask(FINE), 1e-5)
    broken, fine = ask_lines(model, {"inputs": [FINE, ""]}, FINE)
    assert (broken[0]["label"], broken[1]["code"]) == (alone[0]["label"], 400)
    assert not differences(fine, alone, 1e-5)


def test_the_inputs_of_all_lines_are_counted(served: Model) -> None:
    body = "\n".join([json.dumps({"inputs": ["a"] * 65})] * 2)
    assert call(served(MODE), LINES, body).status == 413


@pytest.mark.parametrize(
    ("stream", "facts"),
    [(True, []), ("no", ["stream"])],
)
def test_a_line_cannot_be_streamed(served: Model, stream: Any, facts: list[str]) -> None:
    model = served(MODE)
    usual, refused = ask_lines(
        model, {"inputs": FINE, "stream": False}, {"inputs": FINE, "stream": stream}
    )
    assert not differences(usual, model.ask(FINE), 1e-5)
    assert refused["message"] == Sentence(*facts)


def test_a_line_ends_at_a_line_feed_only(served: Model) -> None:
    model, text = served(MODE), "fine\u2028film\u0085dull"
    assert not differences(ask_lines(model, text), [model.ask(text)], 1e-5)


def test_a_bad_line_has_its_error_in_its_place(served: Model) -> None:
    model = served(MODE)
    body = "\n".join([f'"{FINE}"', '{"inputs": ', '""', '{"inputs": []}', f'"{ODD}"'])
    lines = [json.loads(line) for line in call(model, LINES, body).body.splitlines()]
    fine, broken, empty, several, odd = lines
    assert not differences([fine, odd], [model.ask(FINE), model.ask(ODD)], 1e-5)
    assert [each["code"] for each in (broken, empty, several)] == [400] * 3
    assert broken["message"].startswith("The line is not JSON: ")
    assert several["message"].startswith("inputs is an empty list; ")


@pytest.mark.parametrize(
    ("broken", "facts"),
    [
        (['{"inputs": "a"'] * 66, ["JSON"]),
        (["[" * 65, '{"inputs": "a'], ["line"]),
        (['"' + "[" * 65, '{"a": "' + "[" * 65], ["JSON"]),
        (["]" * 3, "\\", "}{"], ["JSON"]),
    ],
    ids=["objects", "deep", "texts", "ends"],
)
def test_a_broken_line_changes_no_other(served: Model, broken: list[str], facts: list[str]) -> None:
    model, deep = served(MODE), "[" * 70
    lines = [*broken, json.dumps({"inputs": FINE}), json.dumps(deep), broken[0]]
    answers = [json.loads(line) for line in call(model, LINES, "\n".join(lines)).body.splitlines()]
    start = len(broken)
    found, others = answers[start : start + 2], answers[:start] + answers[start + 2 :]
    assert not differences(found, [model.ask(FINE), model.ask(deep)], 1e-5)
    assert all(each["message"] == Sentence(*facts) for each in others)


def test_the_values_of_all_lines_are_counted(served: Model) -> None:
    model = served(MODE)
    most = model.dispatcher._limits.max_values
    line = json.dumps({"inputs": FINE, "parameters": {"top_k": [[]] * (most // 2)}})
    answer = call(model, LINES, f'"{FINE}"\n{line}')
    first, second = (json.loads(each) for each in answer.body.splitlines())
    assert not differences(first, model.ask(FINE), 1e-5)
    assert second["code"] in (400, 413) and "texts, lists and objects" not in second["message"]
    for bodies in ([line, line], [line, '{"inputs": "a', "]" * 3, "[" * 65, line]):
        answer = call(model, LINES, "\n".join(bodies))
        sentence = f"The body has more than {most:,} texts, lists and objects; send it in parts."
        assert (answer.status, read_json(answer.body)["message"]) == (413, sentence)


@pytest.mark.parametrize("body", [(LINES, f'"{FINE}"\n'), (CSV, f'"{FINE}"\n')])
@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (JSON, JSON),
        (LINES, LINES),
        ("application/x-ndjson", "application/x-ndjson"),
        ("text/plain, Text/CSV;q=0.9", f"{CSV}; charset=utf-8"),
        (f"{CSV};q=0.1, {JSON}", JSON),
        (f"{CSV};q=0.1, {LINES}; q=0.2", LINES),
        (f"{CSV};q=0, {JSON};q=0.1", JSON),
    ],
)
def test_the_accept_header_selects_the_content_type(
    served: Model, body: Any, accept: str, kind: str
) -> None:
    answer = call(served(MODE), *body, Accept=accept)
    assert (answer.status, answer.content_type) == (200, kind)


@pytest.mark.parametrize("kind", [CSV, LINES])
@pytest.mark.parametrize("texts", [[FINE, ODD], [FINE]])
def test_inputs_in_json_are_answered_in_the_accepted_type(
    served: Model, texts: list[str], kind: str
) -> None:
    model, inputs = served(MODE), texts if len(texts) > 1 else texts[0]
    answer = call(model, JSON, json.dumps({"inputs": inputs}), Accept=kind)
    assert answer.content_type.startswith(kind)
    lines, labels = answer.body.decode().splitlines(), [model.ask(text)[0] for text in texts]
    assert all(label["label"] in line for label, line in zip(labels, lines, strict=True))


@pytest.mark.parametrize("accept", ["*/*", f"{CSV};q=0.1, */*", f"{LINES};q=0.5, {JSON}", "x/y"])
def test_inputs_are_answered_in_json_if_it_is_preferred(served: Model, accept: str) -> None:
    answer = call(served(MODE), JSON, json.dumps({"inputs": [FINE, ODD]}), Accept=accept)
    assert answer.content_type == JSON and len(read_json(answer.body)) == 2


def test_lines_and_rows_are_explained(served: Model) -> None:
    model = served(MODE, explain_timeout=60)
    ((_, expected),) = model.post(explanation_of({"inputs": [FINE, "dull"]}))
    targets = [{"inputs": FINE, "target": 0}, {"text": "dull", "target": 2}]
    first, second = ask_lines(model, *targets, explain="True")
    assert [first["target"]["index"], second["target"]["index"]] == [0, 2]
    found = ask_table(model, [FINE, "dull"], explain="True")
    assert not differences(found, expected, 1e-3)
    rows = cells(call(model, CSV, table([FINE, "dull"]), explain="True", Accept=CSV))
    assert not differences([json.loads(cell) for (cell,) in rows], expected, 1e-3)


@pytest.mark.parametrize(
    ("kind", "body", "status", "facts"),
    [
        (LINES, '{"inputs": ""}\n"', 400, ["inputs"]),
        (LINES, "{\n{", 400, ["JSON"]),
        (LINES, " \n\n", 400, ["body"]),
        (LINES, "", 400, ["body"]),
        (LINES, b'"\xff"', 400, ["UTF-8"]),
        (LINES, '"a"\n' * 129, 413, ["128"]),
        (LINES, "1\n" * 500_000, 413, ["128"]),
        (CSV, "text\n", 400, ["body"]),
        (CSV, "a,b,c\n", 400, ["3"]),
        (CSV, b"\xff", 400, ["UTF-8"]),
        (CSV, "a\n" * 129, 413, ["128"]),
    ],
)
def test_lines_that_all_fail_get_torchserves_error(
    served: Model, kind: str, body: Any, status: int, facts: list[str]
) -> None:
    answer = call(served(MODE), kind, body, Accept=CSV)
    error = read_json(answer.body)
    assert (answer.status, answer.content_type) == (status, JSON)
    assert error["code"] == status and error["message"] == Sentence(*facts)


def test_requests_of_one_batch_get_their_own_answers(served: Model) -> None:
    model = served(MODE)
    http_requests = [
        request_of(LINES, f'"{FINE}"\n"{ODD}"'),
        HttpRequest({"body": {"inputs": FINE}}, {}),
        request_of(CSV, table([ODD, "dull"]), Accept=CSV),
        request_of(LINES, "{"),
    ]
    together = model.dispatcher.dispatch(http_requests, Meter())
    assert [answer.status for answer in together] == [200, 200, 200, 400]
    lines = [json.loads(line) for line in together[0].body.splitlines()]
    assert not differences(lines, [model.ask(FINE), model.ask(ODD)], 1e-5)
    expected = [each["label"] for each in model.ask([ODD, "dull"])]
    assert [row[0] for row in cells(together[2])] == expected
