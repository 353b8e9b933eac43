"""What a generated text is bound to: a grammar, or calls of tools.

Grammars have the shape of text-generation-inference, tools the shape of OpenAI's API and of
transformers' chat templates.

https://huggingface.co/docs/text-generation-inference/basic_tutorials/using_guidance
https://platform.openai.com/docs/api-reference/chat/create
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    model_validator,
)

from .parameters import PlainSchema

# The limit of OpenAI.
MAX_TOOLS = 128
# The name of the text that a custom tool takes.
CUSTOM_INPUT = "input"
# Levels of objects and lists in a JSON schema; a body has the same maximum.
MAX_SCHEMA_DEPTH = 64


def is_too_deep(schema: Any) -> bool:
    """Return whether a JSON schema has more levels than compilers can read."""
    level = [schema]
    for _ in range(MAX_SCHEMA_DEPTH + 1):
        level = [inner for each in level for inner in _values(each)]
    return bool(level)


def _values(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list) else ()


def _check_depth(schema: Any) -> Any:
    if is_too_deep(schema):
        raise ValueError(f"is nested more than {MAX_SCHEMA_DEPTH} deep; simplify it")
    return schema


def _check_object(schema: dict[str, Any]) -> dict[str, Any]:
    kind = schema.get("type", "object")
    if "object" not in (kind if isinstance(kind, list) else [kind]):
        raise ValueError('describes no object, which arguments are; give it "type": "object"')
    return schema


class Grammar(BaseModel):
    """What a text must match as a whole.

    Attributes:
        type: `json` for a JSON schema, `json_schema` for an object with one under `schema`, `regex`
            for a regular expression, `choice` for one of several texts, `lark` for a grammar in
            llguidance's variant of Lark or in GBNF.
        value: the schema, or its JSON text; the regular expression, the texts, or the grammar.
        strict: whether a keyword of a schema that is not supported is an error, or ignored.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    type: Literal["json", "json_schema", "regex", "choice", "lark"]
    value: Any
    strict: bool = True


# The limit of Anthropic; OpenAI takes half of it.
FunctionLabel = Annotated[str, Field(pattern="^[a-zA-Z0-9_-]{1,128}$")]
# The JSON schema of an object.
ArgumentsSchema = Annotated[
    dict[str, Any], AfterValidator(_check_depth), AfterValidator(_check_object)
]


class Function(BaseModel):
    """A function that the model may call; `parameters` is the JSON schema of its arguments."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    name: FunctionLabel
    description: str | None = None
    parameters: ArgumentsSchema | None = None
    strict: bool | None = None


class FunctionName(BaseModel):
    """The function that the model must call."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    name: str


def _inline(kind: type[BaseModel]) -> WithJsonSchema:
    """Give a type a schema that stands alone, as the schemas of parameters do."""
    schema = kind.model_json_schema(schema_generator=PlainSchema)
    return WithJsonSchema(
        {key: value for key, value in schema.items() if key not in ("title", "description")}
    )


class CustomTool(BaseModel):
    """A tool whose input is a text; `format` is `text`, or a grammar with a regular expression."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    name: FunctionLabel
    description: str | None = None
    format: dict[str, Any] | None = None

    @property
    def as_function(self) -> dict[str, Any]:
        """The function with the text as its only argument."""
        given = self.format or {}
        # In responses, the type is one of the keys of the grammar.
        grammar = given.get("grammar", given) if given.get("type") == "grammar" else None
        text: dict[str, Any] = {"type": "string"}
        if isinstance(grammar, dict):
            if grammar.get("syntax") != "regex" or not isinstance(grammar.get("definition"), str):
                raise ValueError(
                    "has a format that is not supported; send a grammar of the syntax regex, or"
                    " leave it out"
                )
            text["pattern"] = f"^({_without_anchors(grammar['definition'])})$"
        return {
            "name": self.name,
            "description": self.description,
            # A grammar that cannot be enforced is refused.
            "strict": True,
            "parameters": {
                "type": "object",
                "properties": {CUSTOM_INPUT: text},
                "required": [CUSTOM_INPUT],
                "additionalProperties": False,
            },
        }


def _without_anchors(pattern: str) -> str:
    """Return a pattern of whole texts without anchors at its ends, which say nothing there."""
    body = pattern.removeprefix("^")
    backslashes = len(body) - len(body.removesuffix("$").rstrip("\\")) - 1
    is_anchor = body.endswith("$") and backslashes % 2 == 0
    return body[:-1] if is_anchor else body


class Tool(BaseModel):
    """A tool of type `function`; one of type `custom` is a function with a text as its argument."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    type: Literal["function", "custom"]
    function: Annotated[Function, _inline(Function)]

    @model_validator(mode="before")
    @classmethod
    def _with_function(cls, given: Any) -> Any:
        if not isinstance(given, dict) or given.get("type") != "custom" or "function" in given:
            return given
        custom = CustomTool.model_validate(given.get("custom"))
        return {"type": "custom", "function": custom.as_function}

    @property
    def for_template(self) -> dict[str, Any]:
        """The tool as chat templates read it."""
        names = {"name", "description", "parameters"}
        return {
            "type": "function",
            "function": self.function.model_dump(include=names, exclude_none=True),
        }


class NamedTool(BaseModel):
    """A tool that the model must call; Hugging Face's client sends it without a type."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    type: Literal["function", "custom"] = "function"
    function: Annotated[FunctionName, _inline(FunctionName)]

    @model_validator(mode="before")
    @classmethod
    def _with_function(cls, given: Any) -> Any:
        if isinstance(given, dict) and given.get("type") == "custom" and "custom" in given:
            return {"type": "custom", "function": given["custom"]}
        return given


class AllowedTools(BaseModel):
    """The tools that the model may call, of those that it is told about."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: Annotated[list[Annotated[NamedTool, _inline(NamedTool)]], Field(max_length=MAX_TOOLS)]

    @model_validator(mode="before")
    @classmethod
    def _with_functions(cls, given: Any) -> Any:
        # In responses, the keys stand in the choice, and the names in the tools.
        if not isinstance(given, dict):
            return given
        allowed = given.get("allowed_tools", given)
        if not isinstance(allowed, dict) or not isinstance(allowed.get("tools"), list):
            return given
        tools = [_with_inner_name(each) for each in allowed["tools"]]
        return {**allowed, "type": given.get("type"), "tools": tools}

    @property
    def names(self) -> list[str]:
        """The names of the tools."""
        return [tool.function.name for tool in self.tools]


def _with_inner_name(tool: Any) -> Any:
    if not isinstance(tool, dict) or "name" not in tool:
        return tool
    return {"type": tool.get("type"), "function": {"name": tool["name"]}}


def _one_choice(value: Any, read: ValidatorFunctionWrapHandler) -> Any:
    """Give one error for a value that is none of several types."""
    try:
        return read(value)
    except ValidationError:
        raise ValueError(
            'is none of "none", "auto" and "required"; send one of them, or'
            ' {"type": "function", "function": {"name": …}}'
        ) from None


GrammarSpec = Annotated[Grammar, _inline(Grammar)]
Tools = Annotated[Sequence[Annotated[Tool, _inline(Tool)]], Field(max_length=MAX_TOOLS)]
ToolChoice = Annotated[
    Literal["none", "auto", "required"]
    | Annotated[NamedTool, _inline(NamedTool)]
    | Annotated[AllowedTools, _inline(AllowedTools)],
    WrapValidator(_one_choice),
]
