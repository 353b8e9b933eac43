"""A field that a form has several times, where one value is read: the sentence has its number."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from hf_serve.handlers.http.request import HttpRequest, distinct_names
from tests.images import FILES
from tests.sentences import Sentence
from tests.serving import Served

IMAGE, TEXT = FILES[0], b"Nina sings."


@pytest.mark.parametrize(
    ("mode", "fields", "name"),
    [
        ("image_classification", {"image": IMAGE}, "image"),
        ("visual_question_answering", {"image": IMAGE, "question": b"Who?"}, "image"),
        ("visual_question_answering", {"image": IMAGE, "question": b"Who?"}, "question"),
        ("sequence_classification", {"text": TEXT}, "text"),
        ("token_classification", {"text": TEXT}, "text"),
        ("text_generation", {"text": TEXT}, "text"),
        ("question_answering", {"question": b"Who?", "context": TEXT}, "context"),
        ("sequence_classification", {"inputs": TEXT, "parameters": b"{}"}, "parameters"),
        ("text_generation", {"inputs": TEXT, "stream": b"true"}, "stream"),
    ],
)
def test_the_sentence_says_how_often_a_field_came(
    served: Callable[..., Served], mode: str, fields: Mapping[str, bytes], name: str
) -> None:
    sent = [*fields.items(), (name, fields[name])]
    names = distinct_names(each for each, _ in sent)
    row = dict(zip(names, (value for _, value in sent), strict=True))
    ((status, answer),) = served(mode).post(HttpRequest(row, {}))
    assert (status, answer["message"]) == (400, Sentence(name, 2))


@pytest.mark.parametrize(
    ("mode", "value"), [("image_classification", IMAGE), ("sequence_classification", TEXT)]
)
def test_inputs_that_come_several_times_are_several_requests(
    served: Callable[..., Served], mode: str, value: bytes
) -> None:
    row = dict.fromkeys(distinct_names(["inputs"] * 3), value)
    ((status, answer),) = served(mode).post(HttpRequest(row, {}))
    assert (status, len(answer)) == (200, 3)
