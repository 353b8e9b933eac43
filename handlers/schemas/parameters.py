"""The parameters that a request may carry: pydantic models that complain in one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self, get_args

from pydantic import AliasChoices, BaseModel, ConfigDict, ValidationError, model_validator
from pydantic.fields import FieldInfo

from handlers.config.validation_messages import describe_validation_error
from handlers.errors import BadRequest, WrongConfig
from handlers.schemas.pipeline_names import PipelineNames


class WholeNumbers(BaseModel):
    """Base of what takes 2.0 where it takes 2; a field of fractions takes both as well."""

    @model_validator(mode="before")
    @classmethod
    def _read_whole_numbers(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {name: _with_whole_numbers(value) for name, value in values.items()}


def _with_whole_numbers(value: Any) -> Any:
    """Return a value with its whole numbers as integers; of a list or an object, what it holds."""
    if isinstance(value, list):
        return [_whole(each) for each in value]
    if isinstance(value, dict):
        return {name: _whole(each) for name, each in value.items()}
    return _whole(value)


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


class Parameters(WholeNumbers):
    """Base of every mode's parameters: strict types, unknown names refused.

    Attributes:
        pipeline_names: what else is taken of callers of transformers' pipelines.
    """

    pipeline_names: ClassVar[PipelineNames] = PipelineNames()

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

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
        """Return a request's own parameters over the YAML's defaults.

        Clients send null for what they leave open: where it has no meaning of its own, the default
        stands.

        Raises:
            BadRequest: with the first mistake.
            Unprocessable: it sets for a pipeline what cannot be done.
        """
        named = cls.pipeline_names.meant_by(cls._by_name(given))
        try:
            return cls.model_validate({**defaults, **cls._meant(named)})
        except ValidationError as error:
            problem, remedy = describe_validation_error(cls, error)
            raise BadRequest(f"parameters: {problem}; {remedy}") from None

    @classmethod
    def _meant(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return parameters without nulls that say nothing."""
        silent = {name for name, field in cls.model_fields.items() if not _takes_null(field)}
        return {name: it for name, it in given.items() if it is not None or name not in silent}

    @classmethod
    def _by_name(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return parameters under the names of their fields, so that an alias meets its default."""
        aliases = ((name, field.validation_alias) for name, field in cls.model_fields.items())
        names = {
            choice: name
            for name, alias in aliases
            if isinstance(alias, AliasChoices)
            for choice in alias.choices
        }
        return {names.get(key, key): value for key, value in given.items()}


def _takes_null(field: FieldInfo) -> bool:
    return type(None) in get_args(field.annotation)
