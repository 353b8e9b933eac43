from __future__ import annotations

import pytest

from hf_serve.handlers.errors import RequestTooLarge
from hf_serve.handlers.types.parameters import check_list, check_text, parse_json


def test_texts_may_be_as_many_and_as_long_as_the_limits() -> None:
    assert check_list(["a", "b"], "inputs", 2) == ["a", "b"]
    assert check_text("four", "inputs", 4) == "four"
    assert parse_json("[10]", "inputs", 4) == [10]
    with pytest.raises(RequestTooLarge):
        check_list(["a", "b"], "inputs", 1)
    with pytest.raises(RequestTooLarge):
        check_text("four", "inputs", 3)
    with pytest.raises(RequestTooLarge):
        parse_json("[10]", "inputs", 3)
