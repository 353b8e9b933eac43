"""The routes of protocols have names of their own, and tables with the keys of their bodies."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from hf_serve.handlers.protocols.base import Route
from hf_serve.scripts.openapi import all_routes


def test_every_route_has_a_name_of_its_own() -> None:
    names = {each.name for each in all_routes()}
    # vLLM's `tokenize` has an example more for models with chats.
    assert len(all_routes()) - len(names) == 1


@pytest.mark.parametrize(
    "route", [each for each in all_routes() if each.body], ids=lambda route: route.name
)
def test_every_field_of_a_body_is_in_the_table_of_keys(route: Route) -> None:
    is_model = issubclass(route.body, BaseModel)
    fields = route.body.model_fields if is_model else route.body.__annotations__
    assert set(fields) <= set(route.keys.keys)
