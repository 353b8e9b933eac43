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
from ..structural_tag import Format, any_of, compact_json, literal, sequence, tag
from .arguments import arguments_schema, lark_list, list_format, properties_of, types_of
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
        schema, strict = arguments_schema(tool), bool(tool.function.strict)
        required, pairs = schema.get("required", ()), list[tuple[str, bool]]()
        rules: list[str] = []
        for number, (key, own) in enumerate(properties_of(schema).items()):
            pairs.append((f"{name}_{number}", key in required))
            value = json_rule(own, strict=strict)
            if types_of(own) == ["boolean"]:
                value = '("True" | "False")'
            rules.append(f"{name}_{number}: {json.dumps(f'{key}=')} {value}")
        body = f"{name}_pairs: {lark_list(pairs, json.dumps(', '))}"
        head = json.dumps(f"{tool.function.name}(")
        return [f'{name}: {head} {name}_pairs ")"', body, *rules]

    def _format(self, tool: Tool) -> Format:
        schema = arguments_schema(tool)
        pairs = {
            key: sequence(
                literal(f"{key}="),
                any_of(literal("True"), literal("False"))
                if types_of(own) == ["boolean"]
                else compact_json(own),
            )
            for key, own in properties_of(schema).items()
        }
        content = list_format(pairs, schema.get("required", ()), ", ")
        return tag(f"{tool.function.name}(", content, ")")


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
