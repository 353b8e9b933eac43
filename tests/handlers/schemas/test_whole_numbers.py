from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError

from handlers import tasks
from handlers.config.choices import modes
from handlers.protocols.openai.bodies import CompletionBody
from handlers.schemas.explanation_parameters import ExplanationParameters
from handlers.schemas.parameters import Parameters, WholeNumbers

NEEDED = {
    "CompletionBody": {"prompt": "a"},
    "TokenParameters": {"aggregation_strategy": "simple"},
}


class Numbers(WholeNumbers):
    model_config = ConfigDict(strict=True)

    count: int | None = None
    share: float | None = None
    ids: list[int] | None = None
    anything: Any = None


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ({"count": 2.0}, 2),
        ({"share": 2.0}, 2.0),
        ({"share": 2}, 2.0),
        ({"ids": [1.0, 2]}, [1, 2]),
        ({"anything": {"start": 0.0, "share": 0.5}}, {"start": 0, "share": 0.5}),
    ],
)
def test_a_whole_number_is_an_integer_where_one_is_asked_for(given: Any, read: Any) -> None:
    (name,) = given
    found = getattr(Numbers.model_validate(given), name)
    assert (found, repr(found)) == (read, repr(read))


@pytest.mark.parametrize("value", [2.5, float("nan"), float("inf"), True, "2.0"])
def test_another_number_is_no_integer(value: Any) -> None:
    with pytest.raises(ValidationError):
        Numbers.model_validate({"count": value})


@pytest.mark.parametrize(
    "model",
    [CompletionBody, ExplanationParameters, *(tasks.get(mode).parameters for mode in modes())],
)
def test_every_integer_that_a_request_may_set_can_be_written_so(model: type[BaseModel]) -> None:
    needed = NEEDED.get(model.__name__, {})
    for name, field in model.model_fields.items():
        if "int" in str(field.annotation) and "list" not in str(field.annotation):
            found = getattr(model.model_validate({**needed, name: 2.0}), name)
            assert (found, type(found)) == (2, int)


def test_parameters_are_such() -> None:
    assert issubclass(Parameters, WholeNumbers)
