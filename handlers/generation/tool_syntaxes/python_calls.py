"""Tool calls as a list of Python: names with keyword arguments."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...types.structured_output import Tool
from ..json_schemas import Schema, json_rule
from ..structural_tag import Format, any_of, compact_json, literal, matching, sequence, tag
from .argument_lists import NAME_PATTERN, lark_list, list_format, other_name
from .argument_values import types_of
from .arguments import ArgumentsShape, arguments_schema, shapes_of
from .base import NAME, Brackets, EndSearch, ToLark, ToolCall, ToolSyntax

# What separates the arguments of a call in Python, or contains a comma.
ARGUMENT_MARKS = re.compile(r"\\.|[\"'\[\](){},]", re.DOTALL)
# The names of JSON, which are no literals of Python.
JSON_NAMES = {"true": True, "false": False, "null": None}


@dataclass(frozen=True)
class PythonCalls(ToolSyntax):
    """Calls as a list of Python: names with keyword arguments, whose values are literals."""

    begins: str = "["

    def _read(
        self, text: str, at: int, schemas: Mapping[str, Schema]
    ) -> tuple[ToolCall, int] | None:
        found = self._head.match(text, at)
        end = found and Brackets(found.end() - 1, "\"'").end(text)
        if not found or not end:
            return None
        try:
            arguments = _keyword_arguments(text[found.end() : end - 1])
            written = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
            return None
        return ToolCall(found[1], written), end

    @property
    def _head(self) -> re.Pattern[str]:
        """Finds what comes before the arguments of a call."""
        return re.compile(rf"\s*{NAME}\(")

    def _search(self, text: str, at: int) -> EndSearch | None:
        found = self._head.match(text, at)
        return None if found is None else Brackets(found.end() - 1, "\"'")

    def _write(self, call: ToolCall) -> str:
        arguments = json.loads(call.arguments)
        pairs = (f"{key}={_python_literal(value)}" for key, value in arguments.items())
        return f"{call.name}({', '.join(pairs)})"

    def _rules(self, name: str, tool: Tool, to_lark: ToLark) -> list[str]:
        strict, shapes = bool(tool.function.strict), shapes_of(arguments_schema(tool))
        names = [f"{name}_pairs_{number}" for number in range(len(shapes))]
        each = zip(names, shapes, strict=True)
        rules = [rule for own, shape in each for rule in _shape_rules(own, shape, strict=strict)]
        head = json.dumps(f"{tool.function.name}(")
        return [f'{name}: {head} ({" | ".join(names)}) ")"', *rules]

    def _format(self, tool: Tool) -> Format:
        shapes = [_shape_format(each) for each in shapes_of(arguments_schema(tool))]
        content = shapes[0] if len(shapes) == 1 else any_of(*shapes)
        return tag(f"{tool.function.name}(", content, ")")


def _shape_rules(name: str, shape: ArgumentsShape, *, strict: bool) -> list[str]:
    """Return the Lark rules of arguments, the first of which has a name."""
    rules, pairs = list[str](), list[tuple[str, bool]]()
    for number, (key, own, kept) in enumerate(shape.pairs):
        pairs.append((f"{name}_{number}", kept))
        rules.append(f"{name}_{number}: {json.dumps(f'{key}=')} {_value_rule(own, strict)}")
    other = None
    if shape.others is not False:
        other, key = f"{name}_other", f"{name.upper()}_NAME"
        rules.append(f'{other}: {key} "=" {_value_rule(shape.others, strict)}')
        rules.append(f"{key}: {other_name(shape.properties)}")
    return [f"{name}: {lark_list(pairs, json.dumps(', '), other)}", *rules]


def _value_rule(schema: Schema, strict: bool) -> str:
    is_boolean = types_of(schema) == ["boolean"]
    return '("True" | "False")' if is_boolean else json_rule(schema, strict=strict)


def _shape_format(shape: ArgumentsShape) -> Format:
    pairs = {
        key: sequence(literal(f"{key}="), _value_format(own))
        for key, own in shape.properties.items()
    }
    other = None
    if shape.others is not False:
        other = sequence(matching(NAME_PATTERN), literal("="), _value_format(shape.others))
    return list_format(pairs, shape.required, ", ", other)


def _value_format(schema: Schema) -> Format:
    is_boolean = types_of(schema) == ["boolean"]
    return any_of(literal("True"), literal("False")) if is_boolean else compact_json(schema)


def _keyword_arguments(text: str) -> dict[str, Any]:
    """Return the keyword arguments of a call in Python, whose values are literals.

    Their names may be none of Python's, such as `from`.

    Raises:
        ValueError: others are among them.
        SyntaxError: a value is no Python.
    """
    arguments: dict[str, Any] = {}
    for part in _separated(text):
        name, mark, value = part.partition("=")
        if not mark:
            raise ValueError("a call has an argument without a name")
        arguments[name.strip()] = _literal_in(value.strip())
    return arguments


def _separated(text: str) -> list[str]:
    """Return the parts of a text between commas that are in no brackets and in no string."""
    parts, start, depth, quote = list[str](), 0, 0, ""
    for found in ARGUMENT_MARKS.finditer(text):
        mark = found[0]
        if quote or mark in "\"'":
            quote = {"": mark, mark: ""}.get(quote, quote)
        elif mark == "," and not depth:
            parts.append(text[start : found.start()])
            start = found.end()
        elif mark in "([{":
            depth += 1
        elif mark in ")]}":
            depth -= 1
    return [part for part in (*parts, text[start:]) if part.strip()]


def _literal_in(text: str) -> Any:
    """Return the value of a literal of JSON or Python, whose strings differ in their escapes."""
    try:
        return json.loads(text)
    except ValueError:
        return _literal(ast.parse(text, mode="eval").body)


def _literal(node: ast.AST) -> Any:
    """Return the value of a literal of Python or JSON."""
    if isinstance(node, ast.Name) and node.id in JSON_NAMES:
        return JSON_NAMES[node.id]
    if isinstance(node, ast.List | ast.Tuple):
        return [_literal(each) for each in node.elts]
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return {_literal(key or ast.Constant(None)): _literal(value) for key, value in pairs}
    value = ast.literal_eval(node)
    if isinstance(value, str):
        # Python has two letters for the two halves of a pair of surrogates.
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return value


def _python_literal(value: Any) -> str:
    return str(value) if isinstance(value, bool) else json.dumps(value, ensure_ascii=False)
