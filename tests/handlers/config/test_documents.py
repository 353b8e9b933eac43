from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from hf_serve.handlers.config.documents import parse_json, parse_yaml, read_json, repeated_key
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


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("a: 1\nb: {a: 1}", None),
        ("a: 1\na: 2", "a"),
        ("handler:\n  mode: x\n  mode: y", "handler.mode"),
        ("a: [{b: 1, b: 1}]", "a.b"),
        ("a: &x {b: 1}\nc: {<<: *x, d: *x}", None),
        ("&x a: *x", None),
        ("1: a\n'1': b", None),
        ("yes: a\n'yes': b", None),
        ("a: {true: 1, yes: 2}", "a.true"),
        ("1: a\n0x1: b", "1"),
        ("~: a\nnull: b", "~"),
        ("2024-13-45: a\n2024-13-45: b", "2024-13-45"),
        ("", None),
    ],
)
def test_a_key_that_stands_twice_in_a_section_is_found(text: str, key: str | None) -> None:
    assert repeated_key(text) == key
