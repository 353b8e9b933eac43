from __future__ import annotations

import json
import math
from typing import Any

import pytest

from hf_serve.handlers.http.response import HttpResponse, encode_json


@pytest.mark.parametrize(
    ("value", "sent"),
    [
        ("a sentence", "a sentence"),
        ("~ to the last letter of ASCII", "~ to the last letter of ASCII"),
        ("a\r\nb: c", "a??b: c"),
        ("Zürich … 🎉", "Z?rich ... ?"),
        ("x" * 301, f"{'x' * 297}..."),
    ],
)
def test_a_header_value_is_one_short_line(value: str, sent: str) -> None:
    assert HttpResponse(b"", headers={"X-A": value}).headers == {"X-A": sent}


@pytest.mark.parametrize(
    "value",
    [
        {"text": "é “ \u2028 \x00 \x7f", "numbers": [0.1, -2, 1e-9, 10**30], "none": None},
        [True, (1, 2), {"a": {}}],
        "NaN and Infinity are words",
        {},
    ],
)
def test_json_has_the_values(value: Any) -> None:
    assert json.loads(encode_json(value)) == json.loads(json.dumps(value))


def test_json_is_compact() -> None:
    assert encode_json({"a": [1, 2.5], "b": "x y"}) == b'{"a":[1,2.5],"b":"x y"}'


def test_half_of_a_surrogate_pair_stays_escaped_in_json() -> None:
    assert encode_json({"a": "\ud83d"}) == b'{"a":"\\ud83d"}'


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_are_refused_in_json(number: float) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        encode_json({"scores": [1.0, number]})
