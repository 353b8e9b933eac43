"""The OpenAPI documents are valid and agree with the types."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from hf_serve.handlers import tasks
from hf_serve.handlers.config.handler_section import modes
from hf_serve.handlers.registry import EXPLANATION_TARGETS
from hf_serve.scripts import openapi
from hf_serve.scripts.write_openapi import main
from tests.modes import each_mode
from tests.samples import explained_modes, requests_of

# Bodies that no mode takes.
INVALID: list[Any] = [
    {},
    5,
    None,
    [],
    {"inputs": 5},
    {"inputs": []},
    {"parameters": {}},
    {"inputs": [None]},
    {"txt": "a"},
    {"text": 5},
]


@cache
def document(mode: str) -> Any:
    """Return the document of a mode, as clients read it."""
    return json.loads(json.dumps(openapi.document(mode)))


def validator(mode: str, schema: Any) -> Draft202012Validator:
    """Return a validator of values for a schema of a mode's document."""
    return Draft202012Validator({**schema, "components": document(mode)["components"]})


def body_of(mode: str, path: str) -> Draft202012Validator:
    content = document(mode)["paths"][path]["post"]["requestBody"]["content"]
    return validator(mode, content["application/json"]["schema"])


def paths_of(mode: str) -> list[str]:
    return ["/predictions/{model}", *["/explanations/{model}"] * (mode in explained_modes())]


def examples(mode: str) -> Iterator[tuple[Any, Any]]:
    """Return each schema of a body with each of its examples."""
    for methods in document(mode)["paths"].values():
        for media in methods.get("post", {}).get("requestBody", {}).get("content", {}).values():
            for example in media["examples"].values():
                yield media["schema"], example["value"]


@pytest.mark.nightly
def test_the_command_writes_the_document_of_each_mode(tmp_path: Path) -> None:
    main(folder=tmp_path)
    written = {path.name: json.loads(path.read_text("utf-8")) for path in tmp_path.iterdir()}
    assert written == {f"{mode}.json": document(mode) for mode in modes()}


@pytest.mark.parametrize("mode", each_mode())
def test_each_file_is_openapi(mode: str) -> None:
    errors = [error.message for error in OpenAPIV31SpecValidator(document(mode)).iter_errors()]
    assert not errors


def test_a_path_takes_post_where_it_has_a_body() -> None:
    paths = document("text_generation")["paths"]
    assert set(paths["/ping"]) == {"get"}
    assert set(paths["/predictions/{model}"]) == {"post"}
    assert "text/event-stream" in _contents(paths, "200")
    events = document("sequence_classification")["paths"]
    assert "text/event-stream" not in _contents(events, "200")


def test_errors_of_torchserve_itself_have_its_shape() -> None:
    paths = document("sequence_classification")["paths"]
    for status, is_torchserves in (("400", False), ("404", True), ("422", False), ("503", True)):
        schema = _contents(paths, status)["application/json"]["schema"]
        assert ("ErrorBody" in re.findall(r"\w+", str(schema))) == is_torchserves, status


def _contents(paths: Any, status: str) -> Any:
    return paths["/predictions/{model}"]["post"]["responses"][status]["content"]


def test_every_target_is_that_of_a_mode() -> None:
    assert explained_modes() == list(EXPLANATION_TARGETS)


def test_every_component_is_used() -> None:
    unused = []
    for mode in modes():
        used = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document(mode))))
        defined = document(mode)["components"]["schemas"].keys()
        unused += [f"{mode}: {name}" for name in defined - used]
    assert not unused


def test_the_examples_fit_their_schemas() -> None:
    wrong = []
    for mode in modes():
        found = list(examples(mode))
        assert len(found) > (10 if mode in explained_modes() else 5), mode
        for schema, example in found:
            errors = validator(mode, schema).iter_errors(example)
            wrong += [f"{mode}: {example}: {error.message}" for error in errors]
    assert not wrong


def test_valid_bodies_of_a_mode_fit_its_schema() -> None:
    wrong = []
    for mode in modes():
        check = body_of(mode, "/predictions/{model}")
        for inputs, given in requests_of(mode):
            valid = ({"inputs": inputs, "parameters": given}, {"inputs": [inputs]}, inputs)
            wrong += [f"{mode}: {body}" for body in valid if not check.is_valid(body)]
    assert not wrong


def test_invalid_bodies_fit_no_schema() -> None:
    fit = []
    for mode in modes():
        for path in (*paths_of(mode), "/v1/models/{model}:predict"):
            check = body_of(mode, path)
            fit += [f"{mode} {path}: {body}" for body in INVALID if check.is_valid(body)]
    assert not fit


def test_an_unknown_parameter_fits_no_schema() -> None:
    for mode in modes():
        sample = tasks.get(mode).description.wire.example["inputs"]
        for path in paths_of(mode):
            check = body_of(mode, path)
            assert check.is_valid({"inputs": sample, "parameters": {}}), (mode, path)
            assert not check.is_valid({"inputs": sample, "parameters": {"no_such": 1}}), mode
            assert not check.is_valid({"inputs": sample, "no_such": 1}), (mode, path)
