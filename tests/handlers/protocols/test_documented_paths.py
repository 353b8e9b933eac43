"""The paths below a model's own answer as OpenAPI documents describe: examples, mistakes, errors.

`tests/e2e/test_openapi.py` sends the same to a real TorchServe.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import httpx
import pytest

from hf_serve.handlers import tasks
from hf_serve.handlers.config.handler_section import modes
from hf_serve.handlers.http.request import HttpRequest
from hf_serve.handlers.telemetry.metrics import Meter
from hf_serve.scripts.openapi.operations import routes_of
from tests.e2e.documents import JSON, Document, Example
from tests.e2e.test_openapi import WRONG
from tests.serving import Served

LISTS = ("documents", "input", "inputs", "texts")
BELOW = "/predictions/{model}/{version}/"
document = cache(Document)


def examples(mode: str) -> Iterator[Example]:
    """Yield the examples of the paths below a model."""
    return (each for each in document(mode).examples() if each.path.startswith(BELOW))


def modes_by_paths() -> list[Any]:
    """Return the modes as a test's parameter; those with the paths of another are nightly."""
    known: set[frozenset[str]] = {frozenset()}
    found = []
    for mode in (mode for mode in modes() if not tasks.get(mode).description.generation.texts):
        paths = frozenset(each.path for each in routes_of(mode) if each.body)
        found.append(pytest.param(mode, marks=pytest.mark.nightly if paths in known else ()))
        known.add(paths)
    return found


every_mode = pytest.mark.parametrize("mode", modes_by_paths())


def post(model: Served, path: str, body: bytes) -> httpx.Response:
    headers = {"url_path": path.removeprefix(BELOW), "Content-Type": JSON}
    (answer,) = model.dispatcher.dispatch([HttpRequest({"body": body}, headers)], Meter())
    return httpx.Response(
        answer.status, headers={"Content-Type": answer.content_type}, content=answer.body
    )


@every_mode
def test_every_example_is_answered(served: Callable[..., Served], mode: str) -> None:
    for each in examples(mode):
        answer = post(served(mode), each.path, json.dumps(each.value).encode())
        assert answer.status_code == 200, (each, answer.text)
        document(mode).check(each.path, answer)


@every_mode
def test_what_is_wrong_in_an_example_is_refused_by_its_schema_and_by_the_model(
    served: Callable[..., Served], mode: str
) -> None:
    for each in examples(mode):
        for key in each.value:
            body = {**each.value, key: [True]}
            assert not document(mode).fits(each.schema, body), (each.path, body)
            answer = post(served(mode), each.path, json.dumps(body).encode())
            assert answer.status_code in (400, 422), (each.path, body, answer.text)
            document(mode).check(each.path, answer)


@every_mode
def test_a_wrong_body_gets_a_documented_error(served: Callable[..., Served], mode: str) -> None:
    for path in {each.path for each in examples(mode)}:
        for body in WRONG:
            answer = post(served(mode), path, body)
            assert answer.status_code == 400, (path, body, answer.text)
            document(mode).check(path, answer)


@every_mode
def test_a_list_is_refused_where_it_has_a_mistake_or_too_many_items(
    served: Callable[..., Served], mode: str
) -> None:
    lists: list[tuple[Example, str, list[Any]]] = [
        (each, key, items)
        for each in examples(mode)
        for key, items in each.value.items()
        if key in LISTS and isinstance(items, list)
    ]
    for each, key, items in lists:
        for wrong, statuses in (([*items, 5], (200, 400)), (items[:1] * 2000, (400, 413))):
            body = {**each.value, key: wrong}
            answer = post(served(mode), each.path, json.dumps(body).encode())
            assert answer.status_code in statuses, (each.path, key, answer.text)
            # An answer to a list has the error of an item in its place.
            assert answer.is_error or answer.text.count('"code":400') == 1, (each.path, answer.text)
            document(mode).check(each.path, answer)
