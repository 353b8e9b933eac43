"""A server answers as the OpenAPI documents describe: every example, every error, every refusal."""

from __future__ import annotations

from functools import cache
from typing import Any

import httpx
import pytest

from hf_serve.handlers import tasks
from hf_serve.handlers.explainers import targets
from hf_serve.handlers.explainers.targets.base import BaseExplanationTarget
from hf_serve.scripts.serving.server import Server
from tests.e2e.asking import CLIENT, Question, ask, ask_at_once
from tests.e2e.documents import JSON, Document, Example
from tests.e2e.served import explained_modes, served_modes
from tests.samples import PARAMETERS

PREDICTIONS, EXPLANATIONS = "/predictions/{model}", "/explanations/{model}"
# Values of every kind, some of which each parameter refuses.
VALUES: list[Any] = [None, True, -1, 0, 1.5, "no such word", "", [], [5], ["a"], {}, 10**30]
WRONG = [b"", b"{", b"5", b"\xff", b"{}", b"[]", b"null"]
every_mode = pytest.mark.parametrize("mode", served_modes())
every_explained_mode = pytest.mark.parametrize("mode", explained_modes())
# Refusals are the same for every model, and the one that generates has most paths and parameters;
# tests/handlers/protocols/test_documented_paths.py has those of the others.
any_mode = pytest.mark.parametrize(
    "mode",
    [
        pytest.param(mode, marks=() if mode == "text_generation" else pytest.mark.nightly)
        for mode in served_modes()
    ],
)
document = cache(Document)


def send_all(server: Server, questions: list[Question]) -> list[httpx.Response]:
    """Return the answers to many requests; no more wait at once than the queue takes."""
    parts = [questions[start : start + 32] for start in range(0, len(questions), 32)]
    return [answer for part in parts for answer in ask_at_once(server, part)]


@every_mode
def test_every_example_is_answered(server: Server, mode: str) -> None:
    examples = list(document(mode).examples())
    questions = [each.question(mode) for each in examples]
    for example, answer in zip(examples, send_all(server, questions), strict=True):
        assert answer.status_code == 200, (example, answer.text)
        document(mode).check(example.path, answer)


@every_mode
def test_every_get_is_answered(server: Server, mode: str) -> None:
    paths = [path for path, methods in document(mode).paths.items() if "get" in methods]
    assert "/ping" in paths
    for path in paths:
        url = server.inference_url + path.format(model=mode, version="1.0")
        answer = CLIENT.get(url)
        assert answer.status_code == 200, answer.text
        document(mode).check(path, answer)


@every_mode
def test_answers_with_parameters_fit_the_document(server: Server, mode: str) -> None:
    example = document(mode).example(PREDICTIONS)
    bodies = [{**example.value, "parameters": given} for given in PARAMETERS[mode]]
    questions = [example.question(mode, body) for body in bodies]
    for answer in send_all(server, questions):
        assert answer.status_code == 200, answer.text
        document(mode).check(PREDICTIONS, answer)


@every_explained_mode
def test_an_explanation_has_the_accepted_type(server: Server, mode: str) -> None:
    for accepted in ("text/html", JSON):
        answer = ask(server, document(mode).example(EXPLANATIONS).question(mode, Accept=accepted))
        assert answer.headers["content-type"].startswith(accepted)
        document(mode).check(EXPLANATIONS, answer)


@any_mode
def test_a_mistake_in_a_list_is_reported_in_its_place(server: Server, mode: str) -> None:
    lists = [(example, name) for example in document(mode).examples() if (name := listed(example))]
    explanations = {EXPLANATIONS} if targets.get(mode) else set()
    assert {example.path for example, _ in lists} >= {PREDICTIONS, *explanations}
    for example, name in lists:
        items = example.value[name]
        answer = ask(server, example.question(mode, {**quick(example, mode), name: [*items, 5]}))
        if "error_type" in answer.text:  # This format has no errors in lists.
            assert answer.status_code == 400
            assert answer.json()["error"].startswith(f"{name}[{len(items)}] must be ")
        else:
            assert (answer.status_code, answer.text.count('"code":400')) == (200, 1), answer.text
        document(mode).check(example.path, answer)


@any_mode
def test_a_wrong_body_gets_a_documented_error(server: Server, mode: str) -> None:
    paths = [path for path, methods in document(mode).paths.items() if "post" in methods]
    sent = [(path, body) for path in paths for body in WRONG]
    questions = [
        Question(path.format(model=mode, version="1.0"), body, {"Content-Type": JSON})
        for path, body in sent
    ]
    for (path, body), answer in zip(sent, send_all(server, questions), strict=True):
        assert answer.status_code == 400, (path, body, answer.text)
        document(mode).check(path, answer)


@any_mode
def test_what_is_wrong_in_an_example_is_refused_by_its_schema_and_by_the_server(
    server: Server, mode: str
) -> None:
    examples = [each for each in document(mode).examples() if each.kind == JSON]
    keys = [(each, key) for each in examples for key in each.value if key != "target"]
    broken = [(each, {**each.value, key: [True]}) for each, key in keys]
    questions = [example.question(mode, body) for example, body in broken]
    for (example, body), answer in zip(broken, send_all(server, questions), strict=True):
        assert not document(mode).fits(example.schema, body), body
        assert answer.status_code in (400, 422), (body, answer.text)
        document(mode).check(example.path, answer)


@any_mode
def test_too_many_items_get_a_documented_error(server: Server, mode: str) -> None:
    many = [(each, key) for each in document(mode).examples() if (key := listed(each, "prompt"))]
    assert many
    for example, key in many:
        body = {**example.value, key: example.value[key][:1] * 200}
        answer = ask(server, example.question(mode, body))
        # text-generation-inference has 422 for what is too large.
        assert answer.status_code in (413, 422), answer.text
        document(mode).check(example.path, answer)


@any_mode
def test_a_missing_model_gets_a_documented_error(server: Server, mode: str) -> None:
    for example in document(mode).examples():
        answer = ask(server, example.question("no_such_model"))
        assert answer.status_code == 404
        document(mode).check(example.path, answer)


@any_mode
def test_what_a_schema_forbids_is_refused_and_what_it_allows_causes_no_server_error(
    server: Server, mode: str
) -> None:
    example = document(mode).example(PREDICTIONS)
    bodies = changed(example, list(tasks.get(mode).parameters.model_fields))
    answers = send_all(server, [example.question(mode, body) for body in bodies])
    for body, answer in zip(bodies, answers, strict=True):
        document(mode).check(PREDICTIONS, answer)
        assert answer.status_code < 500, (body["parameters"], answer.text)
        if not document(mode).fits(example.schema, body):
            assert answer.status_code == 400, body["parameters"]


@any_mode
def test_what_the_schema_of_an_explanation_forbids_is_refused(server: Server, mode: str) -> None:
    example = document(mode).example(EXPLANATIONS)
    found = changed(example, list(explanation_target(mode).parameters.model_fields))
    bodies = [body for body in found if not document(mode).fits(example.schema, body)]
    assert len(bodies) > 20
    for answer in send_all(server, [example.question(mode, body) for body in bodies]):
        assert answer.status_code == 400
        document(mode).check(EXPLANATIONS, answer)


def explanation_target(mode: str) -> type[BaseExplanationTarget[Any]]:
    """Return the explanation target of a mode, which has one."""
    found = targets.get(mode)
    assert found
    return found


def quick(example: Example, mode: str) -> Any:
    """Return an example's body; for an explanation with the fastest method."""
    if "explain" not in example.path:
        return example.value
    return {**example.value, "parameters": explanation_target(mode).example_parameters}


def changed(example: Example, names: list[str]) -> list[Any]:
    """Return a body with each value of each parameter, and one with an unknown parameter."""
    given = example.value.get("parameters", {})
    if "max_new_tokens" in given:
        given = {**given, "max_new_tokens": 1}
    settings = [{**given, name: value} for name in names for value in VALUES]
    return [{**example.value, "parameters": each} for each in [*settings, {"no_such": 1}]]


def listed(example: Example, *more: str) -> str | None:
    """Return the key of an example's body whose value is a list of inputs."""
    # Those of Cohere's `embed` are messages, and `v2` is also that of tensors.
    if example.kind != JSON or "/v2/" in example.path or example.path.endswith("/v1/embed"):
        return None
    names = ("inputs", "instances", *more)
    return next((name for name in names if isinstance(example.value.get(name), list)), None)
