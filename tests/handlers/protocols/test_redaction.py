from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hf_serve.handlers.http.request import HttpRequest
from hf_serve.handlers.protocols.redaction import redacted, replacement_of
from tests.serving import Served, differences

Load = Callable[..., Served]
TEXT = "Nina Vogel sings in Paris; her brother Tom lives in New York."
OPEN, FIXED = "zero_shot_token_classification", "token_classification"
LABELS: dict[str, Any] = {"labels": ["a kind of music", "city"], "threshold": 0.4}


def send(model: Served, body: Any, path: str = "redact", **headers: str) -> tuple[int, Any]:
    ((status, answer),) = model.post(HttpRequest({"body": body}, {"url_path": path, **headers}))
    return status, answer


def entity(start: int, end: int, kind: str) -> dict[str, Any]:
    return {"entity_group": kind, "score": 0.9, "word": "", "start": start, "end": end}


def test_entities_are_replaced_by_their_types() -> None:
    text = "Write to ada@example.org or to Tom."
    found = redacted(text, [entity(31, 34, "PER"), entity(9, 24, "email address")])
    assert found["text"] == "Write to [EMAIL_ADDRESS] or to [PER]."
    for span in found["spans"]:
        assert text[span["start"] : span["end"]] in ("ada@example.org", "Tom")


def test_entities_that_overlap_leave_nothing_of_the_text_between_them() -> None:
    found = redacted("0123456789", [entity(2, 6, "a"), entity(3, 5, "b"), entity(4, 8, "c")])
    assert found["text"] == "01[A][C]89"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("person", "[PERSON]"),
        ("I-d. number", "[I_D_NUMBER]"),
        ("名前", "[名前]"),
        ("--", "[REDACTED]"),
    ],
)
def test_a_type_is_written_in_capitals(kind: str, expected: str) -> None:
    assert replacement_of(kind) == expected


@pytest.mark.parametrize(("mode", "parameters"), [(OPEN, LABELS), (FIXED, {})])
def test_a_text_is_redacted_by_the_entities_of_its_mode(
    served: Load, mode: str, parameters: dict[str, Any]
) -> None:
    model = served(mode)
    strategy = {"aggregation_strategy": "first", "stride": 16} if mode == FIXED else {}
    entities = model.ask(TEXT, **parameters, **strategy)
    status, found = send(model, {"inputs": TEXT, "parameters": parameters})
    assert (status, found) == (200, redacted(TEXT, entities))
    assert found["spans"]


def test_labels_may_be_among_the_inputs(served: Load) -> None:
    model = served(OPEN)
    labels, others = {"labels": LABELS["labels"]}, {"threshold": LABELS["threshold"]}
    body = {"inputs": {"text": TEXT, **labels}, "parameters": others}
    status, found = send(model, body)
    assert status == 200
    expected = send(model, {"inputs": TEXT, "parameters": LABELS})[1]
    assert not differences(found, expected, 1e-5)
    both = {**body, "inputs": [{"text": TEXT, **labels}, {"text": "", **labels}]}
    first, wrong = send(model, both)[1]
    assert not differences(first, expected, 1e-5)
    assert wrong["code"] == 400


def test_a_list_has_a_result_for_each_text_and_errors_in_their_places(served: Load) -> None:
    model = served(OPEN)
    status, found = send(model, {"inputs": [TEXT, "", TEXT], "parameters": LABELS})
    assert status == 200
    alone = send(model, {"inputs": TEXT, "parameters": LABELS})[1]
    assert found[0] == found[2]
    assert not differences(found[0], alone, 1e-5)
    assert found[1]["code"] == 400


def test_all_of_a_long_text_is_searched(served: Load) -> None:
    model = served(FIXED)
    text = " ".join([TEXT] * 12)
    _, found = send(model, {"inputs": text})
    assert max(span["end"] for span in found["spans"]) > len(text) - len(TEXT)


@pytest.mark.parametrize(
    ("mode", "body", "status", "part"),
    [
        (OPEN, {"inputs": TEXT}, 400, "labels"),
        (OPEN, {"inputs": 5, "parameters": LABELS}, 400, "inputs"),
        (OPEN, {"inputs": []}, 400, "inputs"),
        (OPEN, {"text": TEXT}, 400, "text"),
        (OPEN, [TEXT], 400, "The body must be an object"),
        (OPEN, {"inputs": TEXT, "parameters": {"labels": 5}}, 400, "labels"),
        ("sequence_classification", {"inputs": TEXT}, 422, "finds no entities"),
    ],
)
def test_a_body_that_cannot_be_redacted_is_refused(
    served: Load, mode: str, body: Any, status: int, part: str
) -> None:
    found, answer = send(served(mode), body)
    assert (found, part in answer["message"]) == (status, True), answer


def test_a_redaction_is_not_explained(served: Load) -> None:
    status, answer = send(served(OPEN), {"inputs": TEXT, "parameters": LABELS}, explain="True")
    assert status == 422
    assert "redact" in answer["message"]
