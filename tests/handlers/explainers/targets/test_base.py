from __future__ import annotations

from typing import Any

import pytest

from hf_serve.handlers.errors import BadRequest
from hf_serve.handlers.explainers.targets.base import as_integer


def test_a_number_may_be_up_to_the_one_before_the_limit() -> None:
    assert [as_integer(value, "target", 4) for value in (0, 3)] == [0, 3]


@pytest.mark.parametrize("value", [4, -1, True, "1", 1.0])
def test_another_value_is_refused_with_the_numbers_that_may_be_sent(value: Any) -> None:
    with pytest.raises(BadRequest, match="target must be a number from 0 to 3"):
        as_integer(value, "target", 4)
