"""`GET /models/<name>?customized=true`: the description of a model by a running server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from jsonschema import validate

from hf_serve.scripts.serving.server import Server
from tests.e2e.asking import CLIENT, ask_json
from tests.e2e.served import explained_modes, served_modes

Describe = Callable[[str], dict[str, Any]]
LABELS = {"sequence_classification": ["NEGATIVE", "POSITIVE"], "text_generation": []}
every_mode = pytest.mark.parametrize("mode", served_modes())


def describe(server: Server, path: str) -> dict[str, Any]:
    """Return TorchServe's whole answer for the only version of a model."""
    url = f"{server.management_url}/models/{path}"
    answer = CLIENT.get(url, params={"customized": "true"})
    assert answer.status_code == 200, answer.text
    [version] = answer.json()
    return dict(version)


def described_by(server: Server, mode: str) -> dict[str, Any]:
    """Return the description by a model's handler, in TorchServe's answer."""
    return dict(describe(server, mode)["customizedMetadata"])


@pytest.fixture
def described(server: Server) -> Describe:
    return lambda mode: described_by(server, mode)


@every_mode
def test_each_model_is_described(described: Describe, mode: str) -> None:
    found = described(mode)
    assert (found["name"], found["version"], found["mode"]) == (mode, "1.0", mode)
    assert (found["save_mode"], found["dtype"]) == ("pretrained", "float32")
    assert found["labels"] == LABELS.get(mode, found["labels"])
    assert found["limits"]["max_rows"] == 128
    assert hasattr(transformers, found["architecture"])
    libraries = {"torch": torch.__version__, "transformers": transformers.__version__}
    assert libraries.items() <= found["versions"].items()


@every_mode
def test_the_sample_and_every_default_get_an_answer_that_fits_the_schema(
    server: Server, described: Describe, mode: str
) -> None:
    found = described(mode)
    sample = found["sample"]
    defaults = {
        name: schema["default"]
        for name, schema in found["parameters"].items()
        if "default" in schema
    }
    body = {**sample, "parameters": {**defaults, **sample.get("parameters", {})}}
    validate(sample["inputs"], found["inputs"])
    for content in (sample, body):
        answer = ask_json(server, f"/predictions/{mode}", content)
        assert answer.status_code == 200, answer.text
        validate(answer.json(), found["results"])


@pytest.mark.parametrize("mode", explained_modes())
def test_the_description_names_the_default_explanation_method(
    server: Server, described: Describe, mode: str
) -> None:
    found = described(mode)
    method = found["explanation"]["method"]["default"]
    answer = ask_json(server, f"/explanations/{mode}", found["sample"])
    assert answer.json()["method"] == method


@pytest.mark.parametrize("path", ["sequence_classification", "sequence_classification/1.0"])
def test_the_fields_of_torchserve_are_kept(server: Server, path: str) -> None:
    found = describe(server, path)
    assert [worker["status"] for worker in found["workers"]] == ["READY"]
    assert found["batchSize"] == 16
    assert isinstance(found["customizedMetadata"], dict)
