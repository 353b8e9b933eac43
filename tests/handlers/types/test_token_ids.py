from __future__ import annotations

import pytest

from hf_serve.handlers.errors import BadRequest
from hf_serve.handlers.types.request import TokenIds


@pytest.mark.parametrize(("side", "kept"), [("left", (6, 7)), ("right", (5, 6))])
def test_token_ids_are_truncated_on_the_side_of_the_tokenizer(
    side: str, kept: tuple[int, ...]
) -> None:
    assert TokenIds((5, 6, 7)).truncate(2, side).ids == kept
    assert TokenIds((5, 6)).truncate(2, side).ids == (5, 6)


@pytest.mark.parametrize("ids", [(), (3, -1), (3, 10)])
def test_empty_and_unknown_token_ids_are_refused(ids: tuple[int, ...]) -> None:
    TokenIds((0, 9)).check(10)
    with pytest.raises(BadRequest):
        TokenIds(ids).check(10)
