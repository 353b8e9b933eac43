"""The values of arguments where texts have no quotes of JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...config.messages import quote
from ...errors import Unprocessable
from ..json_schemas import Schema, schema_at
from ..structural_tag import NOTES, Format, any_of, matching
from .arguments import ALTERNATIVES, joined, listed, with_definitions

# Any text, as a regular expression.
ANY_TEXT = r"(.|\n)*"
# What has a meaning in a pattern where it is not escaped and in no class.
SLASH = re.compile(r"(\\.)|/", re.DOTALL)
PATTERN_PARTS = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|[()|^$]", re.DOTALL)


def types_of(schema: Any) -> Sequence[Any]:
    """Return the types of a schema, or the types of its alternatives."""
    if not isinstance(schema, Mapping):
        return ()
    alternatives = schema.get("anyOf", schema.get("oneOf"))
    if isinstance(alternatives, list):
        return [kind for each in alternatives for kind in types_of(each)]
    kind = schema.get("type")
    return kind if isinstance(kind, list) else [kind]


@dataclass(frozen=True)
class ValueForms:
    """How a syntax whose texts have no quotes of JSON writes the values of a schema.

    Attributes:
        texts: the schemas of texts, which stand as they are.
        choices: single texts, which stand as they are.
        others: the schema of the values that are written as JSON; None for none.
    """

    texts: Sequence[Mapping[str, Any]]
    choices: Sequence[str]
    others: Schema | None

    @property
    def has_any_text(self) -> bool:
        """Whether every text is a value."""
        return any(text_expression(each) is None for each in self.texts)

    def allows(self, kind: str) -> bool:
        """Return whether values of a type of JSON that is not a text are allowed."""
        return self.others is True or kind in types_of(self.others)


def value_forms(schema: Schema) -> ValueForms:
    """Return how the values of a schema are written, which has what it refers to."""
    texts, choices, others = list[Mapping[str, Any]](), list[str](), list[Schema]()
    for leaf in _leaves(schema):
        known = {} if isinstance(leaf, bool) else {key: leaf[key] for key in leaf.keys() - NOTES}
        given = [known["const"]] if "const" in known else known.get("enum")
        types = types_of(known)
        if isinstance(given, list):
            choices += [each for each in given if isinstance(each, str)]
            rest = [each for each in given if not isinstance(each, str)]
            others += [{"enum": rest}] if rest else []
        elif leaf is False or (known and "string" not in types):
            others.append(leaf)
        else:
            texts.append(known)
            rest = [kind for kind in types if kind not in ("string", None)]
            others += [{**known, "type": rest}] if rest else [] if known else [True]
    if not others:
        return ValueForms(texts, choices, None)
    return ValueForms(texts, choices, with_definitions(joined(others, "anyOf"), schema))


def _leaves(root: Schema) -> Iterator[Schema]:
    """Yield the alternatives of a schema, without references to them, each once."""
    waiting, seen = [root], set[int]()
    while waiting:
        schema = waiting.pop()
        if id(schema) not in seen:
            seen.add(id(schema))
            inner = _alternatives(schema, root)
            waiting += reversed(inner)
            if not inner:
                yield schema


def _alternatives(schema: Schema, root: Schema) -> Sequence[Schema]:
    """Return the schemas that a schema stands for; none for one that stands for itself."""
    keywords = schema.keys() - NOTES if isinstance(schema, Mapping) else set[str]()
    if not isinstance(schema, Mapping) or len(keywords) != 1:
        return []
    (keyword,) = keywords
    if keyword == "$ref":
        target = schema_at(root, schema["$ref"]) if isinstance(schema["$ref"], str) else None
        return [target] if isinstance(target, Mapping | bool) else []
    members = listed(schema[keyword])
    return members if keyword in ALTERNATIVES or (keyword == "allOf" and len(members) == 1) else []


def text_expression(schema: Mapping[str, Any]) -> str | None:
    """Return the Lark expression of the texts of a schema; None for any text.

    The pattern and the lengths count. The format does not.
    """
    parts = filter(None, (_lengths(schema), _whole_pattern(schema)))
    return " & ".join(f"/{SLASH.sub(_escaped, each)}/" for each in parts) or None


def text_format(texts: Sequence[Mapping[str, Any]]) -> Format | None:
    """Return the format of the texts of schemas in a structural tag; None for any text.

    Where a schema has a pattern, its lengths do not count.
    """
    patterns = [_whole_pattern(each) or _lengths(each) for each in texts]
    found = [matching(each) for each in patterns if each]
    return any_of(*found) if len(found) == len(patterns) else None


def check_texts(texts: Sequence[Mapping[str, Any]]) -> None:
    """Check the patterns of strict schemas, none of which may be ignored.

    Raises:
        Unprocessable: one cannot be enforced.
    """
    wrong = (each for each in texts if "pattern" in each and _whole_pattern(each) is None)
    if found := next(wrong, None):
        raise Unprocessable(
            f"The grammar of an argument has the pattern {quote(found['pattern'])}, which this"
            " model's calls cannot enforce: its anchors must be at its ends; change it."
        )


def _escaped(found: re.Match[str]) -> str:
    return found[1] or r"\/"


def _lengths(schema: Mapping[str, Any]) -> str | None:
    if not schema.keys() & {"minLength", "maxLength"}:
        return None
    return rf"(.|\n){{{schema.get('minLength', 0)},{schema.get('maxLength', '')}}}"


def _whole_pattern(schema: Mapping[str, Any]) -> str | None:
    """Return the regular expression of the whole texts in which a pattern is found.

    None for no pattern, and for one whose anchors are not at its ends.
    """
    pattern = schema.get("pattern")
    if not isinstance(pattern, str):
        return None
    parts = [(found[0], found.span()) for found in PATTERN_PARTS.finditer(pattern)]
    begins, ends = ("^", (0, 1)) in parts, ("$", (len(pattern) - 1, len(pattern))) in parts
    depth = 0
    for mark, (start, end) in parts:
        depth += {"(": 1, ")": -1}.get(mark, 0)
        is_inner = (mark == "^" and start > 0) or (mark == "$" and end < len(pattern))
        if is_inner or (mark == "|" and not depth and (begins or ends)):
            return None
    body = pattern[begins : len(pattern) - ends]
    return f"{'' if begins else ANY_TEXT}({body}){'' if ends else ANY_TEXT}"
