"""Bases of parameters and request bodies: pydantic models whose errors are one sentence."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, ClassVar, Self, TypeVar, get_args

from pydantic import AliasChoices, BaseModel, ConfigDict, ValidationError, model_validator
from pydantic.fields import FieldInfo

from handlers.config.validation_messages import describe_validation_error
from handlers.errors import BadRequest, RequestTooLarge, WrongConfig
from handlers.schemas.pipeline_names import PipelineNames
from handlers.schemas.text_checks import json_type

BodyT = TypeVar("BodyT", bound=BaseModel)
# More than clients send: each unknown key and each wrong value would be an error of its own.
MAX_KEYS = 100
MAX_VALUES = 2_000


class WholeNumbers(BaseModel):
    """Base of models that accept 2.0 for 2; a field of floats accepts both as well."""

    @model_validator(mode="before")
    @classmethod
    def _read_whole_numbers(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {name: _with_whole_numbers(value) for name, value in values.items()}


def _with_whole_numbers(value: Any) -> Any:
    """Return a value with whole numbers as integers, those in a list or an object included."""
    if isinstance(value, list):
        return [_whole(each) for each in value]
    if isinstance(value, dict):
        return {name: _whole(each) for name, each in value.items()}
    return _whole(value)


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


class Parameters(WholeNumbers):
    """Base of every mode's parameters, with strict types and without unknown names.

    Attributes:
        pipeline_names: other names of transformers' pipelines that are accepted.
    """

    pipeline_names: ClassVar[PipelineNames] = PipelineNames()

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )

    @classmethod
    def defaults_from(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Check the YAML's `handler.parameters`, the defaults of every request.

        Raises:
            WrongConfig: with the first mistake.
        """
        try:
            cls.model_validate(dict(given))
        except ValidationError as error:
            raise WrongConfig(
                "handler.parameters", *describe_validation_error(cls, error)
            ) from None
        return cls._by_name(given)

    @classmethod
    def of_request(cls, defaults: Mapping[str, Any], given: Mapping[str, Any]) -> Self:
        """Return a request's parameters over the YAML's defaults.

        Clients send null for parameters that they do not set: where null has no meaning, it is the
        default.

        Raises:
            BadRequest: with the first mistake.
            Unprocessable: it sets a pipeline's parameter that is not supported.
        """
        named = cls.pipeline_names.resolve(cls._by_name(given))
        try:
            return cls.model_validate({**defaults, **cls._without_nulls(named)})
        except ValidationError as error:
            problem, remedy = describe_validation_error(cls, error)
            raise BadRequest(f"parameters: {problem}; {remedy}") from None

    @classmethod
    def _without_nulls(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return parameters without those whose null has no meaning."""
        not_null = {name for name, field in cls.model_fields.items() if not _accepts_null(field)}
        return {
            name: value
            for name, value in given.items()
            if value is not None or name not in not_null
        }

    @classmethod
    def _by_name(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return parameters under the names of their fields instead of their aliases."""
        aliases = ((name, field.validation_alias) for name, field in cls.model_fields.items())
        names = {
            choice: name
            for name, alias in aliases
            if isinstance(alias, AliasChoices)
            for choice in alias.choices
        }
        return {names.get(key, key): value for key, value in given.items()}


def _accepts_null(field: FieldInfo) -> bool:
    return type(None) in get_args(field.annotation)


def parse_body(model: type[BodyT], content: Any) -> BodyT:
    """Return the content of a request's body, checked by its pydantic model.

    Raises:
        BadRequest: with the first mistake.
    """
    if not isinstance(content, dict):
        raise BadRequest(f"The body must be an object, and is {json_type(content)}.")
    if len(content) > MAX_KEYS:
        raise BadRequest(f"The body has {len(content):,} keys; send at most {MAX_KEYS}.")
    try:
        return model.model_validate(content)
    except ValidationError as error:
        problem, remedy = describe_validation_error(model, error)
        raise BadRequest(f"{problem}; {remedy}") from None


def check_size(parameters: Mapping[str, Any]) -> None:
    """Check the number of values in parameters, those in lists and objects included.

    Raises:
        RequestTooLarge: there are too many.
    """
    count, remaining = 0, deque[Any]([parameters])
    while remaining:
        values = remaining.popleft()
        count += len(values)
        if count > MAX_VALUES:
            raise RequestTooLarge(f"parameters has more than {MAX_VALUES:,} values; send fewer.")
        inner = values.values() if isinstance(values, Mapping) else values
        remaining.extend(each for each in inner if isinstance(each, (list, Mapping)))
