"""Checks of requests: models of parameters with their JSON schemas, and functions for values."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Collection, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, get_args

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    PositiveInt,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.json_schema import GenerateJsonSchema

from ..config.messages import RepeatedField, describe_validation_error, quote, suggest
from ..errors import BadRequest, RequestTooLarge, TextTooLong, Unprocessable, WrongConfig
from ..registry import EXPLAINERS
from .model_info import Schema

ANY = None
# A text that is too long is truncated, unless the YAML says otherwise.
TRUNCATED = (True, "longest_first")


@dataclass(frozen=True)
class PipelineNames:
    """The names that a mode accepts.

    Attributes:
        ignored: names that change nothing, and the values that are ignored, or ANY.
        switches: names that are true or false, and the parameters that true stands for.
    """

    ignored: Mapping[str, Collection[Any] | None] = field(default_factory=dict)
    switches: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def resolve(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the mode's parameters; those under their own names take precedence.

        Raises:
            BadRequest: a switch is neither true nor false.
            Unprocessable: another value of an ignored name.
        """
        own = {name: value for name, value in given.items() if name not in self}
        for name in given.keys() & self.ignored.keys():
            self._check_ignored(name, given[name])
        for name in given.keys() & self.switches.keys():
            own = {**self._switched(name, given[name]), **own}
        return own

    def __contains__(self, name: object) -> bool:
        return name in self.ignored or name in self.switches

    def _check_ignored(self, name: str, value: Any) -> None:
        known = self.ignored[name]
        if known is not ANY and value not in (None, [], *known):
            raise Unprocessable(f"{name} cannot be done by this server; leave it out.")

    def _switched(self, name: str, value: Any) -> Mapping[str, Any]:
        if value is not None and not isinstance(value, bool):
            raise BadRequest(
                f"parameters: {name} must be true or false, and is {json_type(value)}."
            )
        return self.switches[name] if value else {}


def in_lower_case(value: Any) -> Any:
    """Return a word in lower case, as the pipelines read it; other values as they are."""
    return value.lower() if isinstance(value, str) else value


BodyT = TypeVar("BodyT", bound=BaseModel)
# More than clients send: pydantic makes an error of each unknown key and each wrong value.
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
            named = cls._by_name(given)
            cls.model_validate(dict(given))
        except DifferentValues as error:
            raise WrongConfig(
                "handler.parameters", f"has {error.problem}", "keep one of them"
            ) from None
        except ValidationError as error:
            raise WrongConfig(
                "handler.parameters", *describe_validation_error(cls, error)
            ) from None
        return named

    @classmethod
    def of_request(cls, defaults: Mapping[str, Any], given: Mapping[str, Any]) -> Self:
        """Return a request's parameters over the YAML's defaults.

        Clients send null for parameters that they do not set: where null has no meaning, it is the
        default.

        Raises:
            BadRequest: with the first mistake.
            Unprocessable: it sets a pipeline's parameter that is not supported.
        """
        try:
            named = cls.pipeline_names.resolve(cls._by_name(given))
            return cls.model_validate({**defaults, **cls._without_nulls(named)})
        except DifferentValues as error:
            raise BadRequest(f"parameters: {error}") from None
        except ValidationError as error:
            problem, remedy = describe_validation_error(cls, error)
            raise BadRequest(f"parameters: {problem}; {remedy}") from None

    @classmethod
    def _without_nulls(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return parameters without those whose null has no meaning."""
        fields = cls.model_fields.items()
        not_null = {name for name, each in fields if type(None) not in get_args(each.annotation)}
        nulls = {name for name, value in given.items() if value is None and name in not_null}
        return {name: value for name, value in given.items() if name not in nulls}

    @classmethod
    def _by_name(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return parameters under the names of their fields instead of their aliases.

        Raises:
            DifferentValues: two names of one parameter have different values.
        """
        aliases = ((name, field.validation_alias) for name, field in cls.model_fields.items())
        names = {
            choice: name
            for name, alias in aliases
            if isinstance(alias, AliasChoices)
            for choice in alias.choices
        }
        keys: dict[str, list[str]] = {}
        for key in given:
            keys.setdefault(names.get(key, key), []).append(key)
        return {name: one_value({key: given[key] for key in own}) for name, own in keys.items()}


class DifferentValues(BadRequest):
    """Two names of one setting have different values.

    Attributes:
        problem: what is wrong, without what to do.
    """

    def __init__(self, first: str, second: str) -> None:
        self.problem = f"{first} and {second}, two names of one setting, with different values"
        super().__init__(
            f"{first} and {second} are two names of one setting, and have different values; send"
            " one of them."
        )


def one_value(given: Mapping[str, Any]) -> Any:
    """Return the value of a setting that has several names; None if none of them has one.

    Args:
        given: the value under each of its names; null says nothing.

    Raises:
        DifferentValues: two of them have different values.
    """
    found = {name: value for name, value in given.items() if value is not None}
    for (first, value), (second, other) in pairwise(found.items()):
        if value != other:
            raise DifferentValues(first, second)
    return next(iter(found.values()), None)


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
    """Refuse parameters with too many values; values in lists and objects count."""
    count, remaining = 0, deque[Any]([parameters])
    while remaining:
        values = remaining.popleft()
        count += len(values)
        if count > MAX_VALUES:
            raise RequestTooLarge(f"parameters has more than {MAX_VALUES:,} values; send fewer.")
        inner = values.values() if isinstance(values, Mapping) else values
        remaining.extend(each for each in inner if isinstance(each, (list, Mapping)))


Granularity = Literal["token", "word"]
BaselineImage = Literal["mean", "blur", "black"]


class AdapterParameters(Parameters):
    """Parameters of models that may have LoRA adapters."""

    adapter_id: str | None = None
    """The LoRA adapter that computes the result, by its name in the YAML's `adapters`."""


class ExplanationParameters(Parameters):
    """How to explain, whatever the rows of the mode are.

    `method` is the name of a file in `handlers/explainers/`; `target` what is explained, each mode
    says in which form, the prediction by default; `n_steps` of integrated gradients, by default as
    many as it takes; `n_samples` of the sampling methods.
    """

    method: str | None = None
    """Attribution method, see [Methods](#methods). Without it, the default of the mode."""
    target: Any = None
    """What is explained, see [Targets](#targets). Without it, the prediction."""
    n_steps: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Steps of `layer_integrated_gradients` and `integrated_gradients`. Without it, as many as
    convergence needs."""
    n_samples: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Samples of `shapley_value_sampling` and `kernel_shap`."""

    @field_validator("method")
    @classmethod
    def _method_has_a_file(cls, word: str | None) -> str | None:
        if word is not None and word not in EXPLAINERS:
            raise ValueError(f"is {quote(word)}; {suggest(word, sorted(EXPLAINERS))}")
        return word


class TextExplanationParameters(ExplanationParameters):
    """How to explain by the tokens or words of texts."""

    granularity: Granularity = "token"
    """Unit of the attributions."""


class ImageExplanationParameters(ExplanationParameters):
    """How to explain by the patches of an image."""

    resolution: Annotated[int, Field(ge=2, le=64)] = 14
    """Patches along the longer side of the image, the unit of the attributions."""
    baseline: BaselineImage = "mean"
    """What replaces the image, or a part of it: its mean colour, the image blurred, or black."""
    window: PositiveInt = 2
    """Side of the square that `occlusion` covers, in patches."""
    stride: PositiveInt = 1
    """Distance between two squares of `occlusion`, in patches; at most `window`."""

    @field_validator("stride")
    @classmethod
    def _every_patch_is_covered(cls, stride: int, info: ValidationInfo) -> int:
        window = info.data.get("window", stride)
        if stride > window:
            raise ValueError(f"is {stride} and window {window}; send at most window")
        return stride


class MultimodalExplanationParameters(TextExplanationParameters, ImageExplanationParameters):
    """How to explain by the tokens or words of a text, or by the patches of an image."""


def split_parameters(
    kind: type[ExplanationParameters], given: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Divide parameters into the parameters of the explanation and the parameters of the mode."""
    explanation = {key: given[key] for key in given if key in kind.model_fields}
    return explanation, {key: given[key] for key in given if key not in explanation}


class PlainSchema(GenerateJsonSchema):
    """JSON schemas without titles that repeat a field's name."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def json_schema(kind: Any) -> dict[str, Any]:
    """Return the JSON schema of a type."""
    return deepcopy(_schema(kind))


@cache
def _schema(kind: Any) -> dict[str, Any]:
    return TypeAdapter(kind).json_schema(schema_generator=PlainSchema)


def parameter_schemas(kind: type[Parameters], defaults: Schema) -> dict[str, Any]:
    """Return the JSON schema of each parameter by name, with the given defaults.

    Descriptions are left out: they belong to the documentation, and are long for an answer.
    """
    found = deepcopy(_parameter_schemas(kind))
    for name, schema in found.items():
        schema.pop("description", None)
        if name in defaults:
            schema["default"] = defaults[name]
    return found


@cache
def _parameter_schemas(kind: type[Parameters]) -> dict[str, Any]:
    schema = kind.model_json_schema(by_alias=False, schema_generator=PlainSchema)
    return dict(schema["properties"])


def check_text(
    value: Any,
    name: str,
    max_characters: int,
    too_long: type[RequestTooLarge] = TextTooLong,
) -> str:
    """Return a text that a tokenizer can take.

    Args:
        name: its name in an error, for example `inputs`.

    Raises:
        BadRequest: not a string, empty, or with half a surrogate pair.
        RequestTooLarge: more characters than allowed.
    """
    if not isinstance(value, str):
        raise BadRequest(f"{name} must be a text, and is {json_type(value)}.")
    if not value.strip():
        raise BadRequest(f"{name} is empty; send a text.")
    if len(value) > max_characters:
        raise too_long(
            f"{name} has {len(value):,} characters, and this model takes {max_characters:,}"
            "; send less."
        )
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise BadRequest(
            f"{name} has half of a surrogate pair at character {error.start}"
            "; send whole characters."
        ) from None
    return value


def check_setting(value: Any, name: str, max_characters: int) -> str:
    """Return a checked text that is no input of the model, such as a name or a schema."""
    return check_text(value, name, max_characters, RequestTooLarge)


def check_list(value: Any, name: str, max_rows: int, noun: str = "text") -> list[Any]:
    """Return the list of texts of one request; the texts are not checked yet.

    Args:
        noun: what its items are, for errors.
    """
    if not isinstance(value, list):
        raise BadRequest(f"{name} must be a list of {noun}s, and is {json_type(value)}.")
    if not value:
        raise BadRequest(f"{name} is an empty list; send at least one {noun}.")
    if len(value) > max_rows:
        raise RequestTooLarge(
            f"{name} has {len(value):,} {noun}s, and this model takes {max_rows:,} a request"
            "; send them in parts."
        )
    return value


def check_object(value: Any, form: str, *keys: Collection[str]) -> dict[str, Any]:
    """Return inputs that are an object with exactly one of several sets of keys.

    Args:
        form: what to send, for errors.
    """
    if not isinstance(value, dict):
        raise BadRequest(f"inputs must be {form}, and is {json_type(value)}.")
    if all(value.keys() != set(each) for each in keys):
        raise BadRequest(f"inputs has the keys {quote(sorted(map(str, value)))}; send {form}.")
    return value


def parse_json(value: Any, name: str, max_characters: int) -> Any:
    """Return the value of a JSON text, as tensors and forms have lists; others as they are."""
    if not isinstance(value, str):
        return value
    if len(value) > max_characters:
        raise TextTooLong(
            f"{name} has {len(value):,} characters, and this model takes {max_characters:,}"
            "; send less."
        )
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise BadRequest(f"{name} is a text that is not JSON; send JSON.") from None


def json_type(value: Any) -> str:
    """Return the name of the type of a JSON value, or of a body or a field of a form."""
    if isinstance(value, RepeatedField):
        return f"in {len(value):,} fields of the form"
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false"}
    names |= {int: "a number", float: "a number", type(None): "null", bytes: "a file"}
    return names.get(type(value), f"a {type(value).__name__}")
