from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError

from hf_serve.handlers import tasks
from hf_serve.handlers.config.handler_section import modes
from hf_serve.handlers.protocols.openai.bodies import CompletionBody
from hf_serve.handlers.types.parameters import ExplanationParameters, Parameters, WholeNumbers

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
def test_a_whole_number_is_an_integer_in_an_integer_field(given: Any, read: Any) -> None:
    (name,) = given
    found = getattr(Numbers.model_validate(given), name)
    assert (found, repr(found)) == (read, repr(read))


@pytest.mark.parametrize("value", [2.5, float("nan"), float("inf"), True, "2.0"])
def test_other_values_are_not_integers(value: Any) -> None:
    with pytest.raises(ValidationError):
        Numbers.model_validate({"count": value})


def test_every_integer_field_of_a_request_accepts_a_whole_number() -> None:
    models: set[type[BaseModel]] = {
        CompletionBody,
        ExplanationParameters,
        *(tasks.get(mode).parameters for mode in modes()),
    }
    fields = [
        (model, name)
        for model in models
        for name, field in model.model_fields.items()
        if re.search(r"\bint\b", str(field.annotation))
        and not re.search("list|dict|tuple", str(field.annotation))
    ]
    assert {model for model, _ in fields} > {CompletionBody, ExplanationParameters}
    for model, name in fields:
        number = least(model.model_json_schema()["properties"][name])
        given = {**NEEDED.get(model.__name__, {}), name: float(number)}
        found = getattr(model.model_validate(given), name)
        assert (found, type(found)) == (number, int), f"{model.__name__}.{name}"


def least(schema: dict[str, Any]) -> int:
    """Return 2, or the minimum of a field where it is greater."""
    kinds = (schema, *schema.get("anyOf", ()))
    return max(2, *(int(each.get("minimum", 2)) for each in kinds))


def test_parameters_accept_whole_numbers() -> None:
    assert issubclass(Parameters, WholeNumbers)
