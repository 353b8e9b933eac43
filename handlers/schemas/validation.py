"""Request bodies against their pydantic models."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from handlers.config.validation_messages import describe_validation_error
from handlers.errors import BadRequest
from handlers.schemas.text_checks import json_type

BodyT = TypeVar("BodyT", bound=BaseModel)


def parse_body(model: type[BodyT], content: Any) -> BodyT:
    """Return the content of a request's body as a model of it.

    Raises:
        BadRequest: with the first mistake.
    """
    if not isinstance(content, dict):
        raise BadRequest(f"The body must be an object, and is {json_type(content)}.")
    try:
        return model.model_validate(content)
    except ValidationError as error:
        problem, remedy = describe_validation_error(model, error)
        raise BadRequest(f"{problem}; {remedy}") from None
