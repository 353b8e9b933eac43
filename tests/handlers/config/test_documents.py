from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from hf_serve.handlers.config.documents import parse_json, parse_yaml, read_json
from tests.malformed import NESTED_JSON


def test_json_and_yaml_are_read(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"a": [1]}')
    assert read_json(path) == parse_json(b'{"a": [1]}') == parse_yaml("a: [1]") == {"a": [1]}


@pytest.mark.parametrize("text", ["{", NESTED_JSON])
def test_json_that_cannot_be_read_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        parse_json(text)


@pytest.mark.parametrize("text", ["{", NESTED_JSON, "a: 2024-13-45", "a: !!bool b", "a: !!int ''"])
def test_yaml_that_cannot_be_read_is_an_error_of_yaml(text: str) -> None:
    with pytest.raises(yaml.YAMLError):
        parse_yaml(text)
