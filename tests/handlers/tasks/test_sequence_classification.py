from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.serving import Served


@pytest.mark.parametrize(("inputs", "special"), [("A film", 2), (["A film", "A book"], 3)])
def test_a_row_has_room_for_a_token_that_is_not_special(
    served: Callable[..., Served], inputs: object, special: int
) -> None:
    model = served("sequence_classification")
    given = {"text": inputs[0], "text_pair": inputs[1]} if isinstance(inputs, list) else inputs
    status, sentence = model.refuse(given, max_length=special)
    assert (status, f"{special} tokens of a row are special" in sentence) == (400, True)
    assert model.ask(given, max_length=special + 1)
