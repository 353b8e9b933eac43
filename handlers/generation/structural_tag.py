"""Structural tags: the grammars of xgrammar, which engines with a compiler of their own read.

https://xgrammar.mlc.ai/docs/tutorials/structural_tag.html
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

Format = Mapping[str, Any]
# xgrammar refuses a text and a pattern without any characters.
EMPTY: Format = {"type": "regex", "pattern": "()"}
# Rules of any JSON, with one space between its parts, in xgrammar's variant of EBNF.
JSON_RULES = r"""
value ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" (member (", " member)*)? "}"
member ::= string ": " value
array ::= "[" (value (", " value)*)? "]"
string ::= "\"" character* "\""
character ::= [^"\\\x00-\x1f] | "\\" escaped
escaped ::= ["\\/bfnrt] | "u" digit digit digit digit
digit ::= [0-9a-fA-F]
number ::= "-"? ("0" | [1-9] [0-9]*) ("." [0-9]+)? ([eE] [+-]? [0-9]+)?
"""


def any_json(kind: Literal["value", "object", "array", "string"]) -> Format:
    """Return the format of any JSON of a kind, with one space between its parts."""
    return {"type": "grammar", "grammar": f"root ::= {kind}{JSON_RULES}"}


def matching(pattern: str) -> Format:
    """Return the format of the texts that match a regular expression."""
    return {"type": "regex", "pattern": pattern}


def schema_of(schema: Mapping[str, Any] | bool) -> Format:
    """Return the format of the JSON that matches a schema, with any whitespace in it."""
    return {"type": "json_schema", "json_schema": schema}


def literal(text: str) -> Format:
    """Return the format of one text, which is not empty."""
    return {"type": "const_string", "value": text}


def sequence(*parts: Format) -> Format:
    """Return the format of parts one after another."""
    return {"type": "sequence", "elements": list(parts)}


def any_of(*choices: Format) -> Format:
    """Return the format of a text in one of several formats."""
    return {"type": "or", "elements": list(choices)}


def tag(begin: str, content: Format, end: str) -> Format:
    """Return the format of a content between two texts."""
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def repeated(content: Format, separator: str) -> Format:
    """Return the format of any number of contents, the last part of a tag."""
    return {**tags([tag("", content, "")], separator), "at_least_one": False}


def tags(each: Sequence[Format], separator: str) -> Format:
    """Return the format of one or more of several tags."""
    return {
        "type": "tags_with_separator",
        "tags": list(each),
        "separator": separator,
        "at_least_one": True,
        "stop_after_first": False,
    }


def text_until(opening: str, last: Format) -> Format:
    """Return the format of a free text that may end with a tag, which begins with an opening."""
    return {
        "type": "triggered_tags",
        "triggers": [opening],
        "tags": [last],
        "at_least_one": False,
        "stop_after_first": True,
    }
