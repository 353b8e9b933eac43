"""docs/openapi: valid OpenAPI that agrees with the types."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from handlers import tasks
from handlers.config.choices import modes, module_names
from scripts.kit import openapi
from scripts.kit.openapi import DOCUMENTS
from scripts.write_openapi import main
from tests.samples import explained_modes, requests_of

document = cache(openapi.document)
every_mode = pytest.mark.parametrize("mode", modes())


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


def test_the_files_are_what_the_command_writes_today(tmp_path: Path) -> None:
    main(folder=tmp_path)
    written = {path.name: path.read_text("utf-8") for path in tmp_path.iterdir()}
    kept = {path.name: path.read_text("utf-8") for path in DOCUMENTS.iterdir()}
    assert written == kept, "run python scripts/write_openapi.py"
    assert written.keys() == {f"{mode}.json" for mode in modes()}


@every_mode
def test_each_file_is_openapi(mode: str) -> None:
    kept = json.loads((DOCUMENTS / f"{mode}.json").read_text("utf-8"))
    errors = [error.message for error in OpenAPIV31SpecValidator(kept).iter_errors()]
    assert not errors


def test_every_target_is_that_of_a_mode() -> None:
    assert explained_modes() == module_names("explainers/targets")


@every_mode
def test_every_component_is_used(mode: str) -> None:
    text = json.dumps(document(mode))
    # Named in the description of a stream, whose events have no schema.
    streamed = {"ChatCompletionChunk", "CompletionChunk", "ResponseEvent", "TokenEvent"}
    streamed |= {"ImageEvent", "StepEvent"}
    unused = {
        name
        for name in document(mode)["components"]["schemas"]
        if f'"#/components/schemas/{name}"' not in text
    }
    assert unused <= streamed


@every_mode
def test_the_examples_fit_their_schemas(mode: str) -> None:
    found = list(examples(mode))
    assert len(found) > (10 if mode in explained_modes() else 5)
    for schema, example in found:
        validator(mode, schema).validate(example)


@every_mode
def test_valid_bodies_of_a_mode_fit_its_schema(mode: str) -> None:
    check = body_of(mode, "/predictions/{model}")
    for inputs, given in requests_of(mode):
        for body in ({"inputs": inputs, "parameters": given}, {"inputs": [inputs]}, inputs):
            check.validate(body)


@every_mode
@pytest.mark.parametrize(
    "body",
    [
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
    ],
)
def test_invalid_bodies_fit_no_schema(mode: str, body: Any) -> None:
    for path in (*paths_of(mode), "/v1/models/{model}:predict"):
        assert not body_of(mode, path).is_valid(body)


@every_mode
def test_an_unknown_parameter_fits_no_schema(mode: str) -> None:
    sample = tasks.get(mode).sample["inputs"]
    for path in paths_of(mode):
        check = body_of(mode, path)
        assert check.is_valid({"inputs": sample, "parameters": {}})
        assert not check.is_valid({"inputs": sample, "parameters": {"no_such": 1}})
        assert not check.is_valid({"inputs": sample, "no_such": 1})
