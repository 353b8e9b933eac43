"""Grammars for openvino-genai, which compiles them with xgrammar."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from handlers.compat.xgrammar import error_reason, ignored_part
from handlers.errors import UnsupportedByBackend, summarize
from handlers.generation.compile_cache import CompileCache, TooBusyToCompile
from handlers.generation.json_schemas import Schema, relaxed, schemas_in
from handlers.generation.text_grammar import TextGrammar
from handlers.runtime.cgroup import available_cores

VOCABULARY = Path(__file__).with_name("openvino_genai_vocabulary.py")
# What a trial may take. On a busy machine the wall clock shows a multiple of the CPU time.
TRIAL = Path(__file__).with_name("openvino_genai_trial.py")
TRIAL_CPU_SECONDS, TRIAL_BYTES, TRIAL_TIMEOUT = 1, 4 * 2**30, 30.0
# The exit statuses of a trial, beside those of a program that fails or is killed.
REFUSED, TOO_LARGE = 3, 4
CACHED_GRAMMARS = 64
# Sets within sets, which xgrammar takes for characters.
NESTED_SET = re.compile(r"(?<!\\)(?:\\\\)*\[(?:\\.|[^\]\\])*?(?:\[|&&|--|~~)")
# A set that begins with the bracket that usually ends one.
BRACKET_SET = re.compile(r"(?<!\\)(?:\\\\)*\[\^?\]")
# A part of a pattern, whose characters need no escape in JSON.
PLAIN = re.compile(
    r"""[A-Za-z0-9 _:;,@/#%&=<>~!'`-]|[^\x00-\x7f]"""
    r"""|\\[dw.+*?(){}|^$/\[\]-]"""
    r"""|\[(?:[a-z]-[a-z]|[A-Z]-[A-Z]|[0-9]-[0-9]|[A-Za-z0-9 _:;,@/#%&=<>~!'`.+*?(){}|$]"""
    r"""|[^\x00-\x7f]|\\[dw.+*?(){}|^$/\[\]-])+-?\]"""
    r"""|(?P<open>\((?:\?:|(?!\?)))|(?P<close>\))|(?P<bar>\|)|[*+?]|\{\d+(?:,\d*)?\}"""
)

ANNOTATIONS = {
    *("$comment", "$defs", "$id", "$schema", "definitions", "deprecated", "description"),
    *("default", "examples", "readOnly", "title", "writeOnly", "type"),
}
# Keywords that xgrammar reads alone.
ALONE = ("$ref", "const", "enum", "anyOf", "oneOf", "allOf")
OF_STRING = {"minLength", "maxLength", "pattern", "format"}
RANGE = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
OF_TYPE: Mapping[str, set[str]] = {
    "string": OF_STRING,
    "integer": RANGE,
    "number": RANGE,
    "array": {"items", "prefixItems", "minItems", "maxItems"},
    "object": {"properties", "required", "additionalProperties"},
}


class GrammarTrials:
    """Tries grammars before an engine compiles them, each once.

    Args:
        tokens: the bytes of each token.
        ends: ids of the tokens that end a text.
    """

    def __init__(self, tokens: Sequence[bytes], ends: frozenset[int]) -> None:
        self._folder = TemporaryDirectory(prefix="vocabulary-")
        self._end = min(ends)
        content = {"tokens": [each.hex() for each in tokens], "ends": sorted(ends)}
        command = [sys.executable, "-P", str(VOCABULARY), str(self.folder)]
        subprocess.run(command, input=json.dumps(content).encode(), check=True)
        # Each trial is a process with limits of its own.
        self._ignored = CompileCache(
            self._try, size=CACHED_GRAMMARS, at_once=available_cores(), seconds=TRIAL_TIMEOUT
        )

    @property
    def folder(self) -> Path:
        """The folder of the vocabulary."""
        return Path(self._folder.name)

    def structural_tag(self, grammar: TextGrammar, *, relaxes: bool) -> str:
        """Return the structural tag of a grammar that the engine can compile.

        Args:
            grammar: the grammar.
            relaxes: whether constraints that the engine lacks are left out of schemas that are not
                strict.

        Raises:
            BadRequest: the grammar has a mistake.
            Overloaded: others take all the time that it may wait.
            RequestTooLarge: it has too many characters.
            UnsupportedByBackend: the engine cannot follow it.
        """
        if relaxes:
            grammar = grammar.relaxed(_without_lacking)
        for schema in grammar.schemas:
            check_values(schema)
        for schema in grammar.strict_schemas:
            check_schema(schema)
        for pattern in grammar.patterns:
            check_pattern(pattern)
        grammar = grammar.followed()
        tag = json.dumps({"type": "structural_tag", "format": grammar.format})
        ignored = self._ignored.get(tag)
        if ignored and (grammar.strict_schemas or grammar.patterns):
            raise _cannot(ignored)
        return tag

    def _try(self, tag: str) -> str:
        """Return what is ignored of a grammar.

        Raises:
            UnsupportedByBackend: it cannot be followed.
            Overloaded: the process had too little CPU time to tell.
        """
        limits = (str(TRIAL_CPU_SECONDS), str(TRIAL_BYTES))
        command = [sys.executable, "-P", str(TRIAL), str(self.folder), str(self._end), *limits]
        try:
            done = subprocess.run(
                command, input=tag.encode(), capture_output=True, timeout=TRIAL_TIMEOUT, check=False
            )
        except subprocess.TimeoutExpired:
            raise TooBusyToCompile from None
        if done.returncode == REFUSED:
            raise _cannot(error_reason(done.stdout.decode(errors="replace")))
        if done.returncode < 0 or done.returncode == TOO_LARGE:
            raise UnsupportedByBackend(
                "The engine of this model, which has continuousBatching, needs too much time or"
                " memory to compile the grammar; simplify it."
            )
        if done.returncode > 0:
            raise RuntimeError("the trial of grammars does not start")
        return ignored_part(done.stderr.decode(errors="replace"))


def check_values(schema: Schema) -> None:
    """Check that all values that xgrammar allows for a JSON schema are JSON, and within its bounds.

    Raises:
        UnsupportedByBackend: with a keyword for which it allows others.
    """
    for _, each in schemas_in(schema):
        types = each.get("type")
        is_number = "number" in ([types] if isinstance(types, str) else _list(types))
        if bounds := sorted(each.keys() & RANGE) if is_number else []:
            raise UnsupportedByBackend(
                "The engine of this model, which has continuousBatching, does not keep to"
                f" {bounds[0]} of numbers; leave it out, or use the type integer."
            )
        pattern = each.get("pattern")
        if isinstance(pattern, str) and not is_plain(pattern):
            raise UnsupportedByBackend(
                "The engine of this model, which has continuousBatching, knows simple patterns in a"
                " JSON schema alone, without quotes, backslashes and dots; simplify it."
            )


def _without_lacking(schemas: Sequence[Schema]) -> list[Schema]:
    """Return schemas without the constraints that :func:`check_values` refuses."""
    return [relaxed(schema, _lacks) for schema in schemas]


def _lacks(constraint: Schema) -> bool:
    """Return whether xgrammar cannot follow the one constraint of a schema."""
    try:
        check_values(constraint)
    except UnsupportedByBackend:
        return True
    return False


def is_plain(pattern: str) -> bool:
    """Return whether xgrammar reads a pattern as it is meant, and its texts are JSON as they are.

    It does not escape what a pattern allows, and reads `^a|b$` as if only `b` was the whole text.
    """
    rest, depth = pattern.removeprefix("^"), 0
    rest = rest.removesuffix("$") if not rest.endswith("\\$") else rest
    place = 0
    while place < len(rest):
        part = PLAIN.match(rest, place)
        if part is None or (part["bar"] and not depth):
            return False
        depth += bool(part["open"]) - bool(part["close"])
        place = part.end()
    return True


def check_schema(schema: Schema) -> None:
    """Check that xgrammar ignores no keyword of a JSON schema.

    Raises:
        UnsupportedByBackend: with one that it ignores.
    """
    for _, each in schemas_in(schema):
        if ignored := _ignored(each):
            raise UnsupportedByBackend(
                f"The engine of this model, which has continuousBatching, may ignore {ignored}"
                " in this JSON schema; leave it out, or strict: true."
            )


def check_pattern(pattern: str) -> None:
    """Check that xgrammar reads a regular expression as it is meant.

    Raises:
        UnsupportedByBackend: it has a set of characters within another, or one that begins with
            `]`.
    """
    if NESTED_SET.search(pattern) or BRACKET_SET.search(pattern):
        raise UnsupportedByBackend(
            "The engine of this model, which has continuousBatching, knows no sets of characters"
            " within others in a regex; write the characters out, or escape the bracket."
        )


def _ignored(schema: Mapping[str, Any]) -> str | None:
    """Return a keyword that xgrammar ignores; None if there is none.

    What is no schema at all is left to the compiler, which says what is wrong.
    """
    keywords = schema.keys() - ANNOTATIONS
    alone = next((name for name in ALONE if name in keywords), None)
    if alone == "allOf" and len(_list(schema["allOf"])) > 1:
        return "allOf with several schemas"
    if alone:
        others = sorted(keywords - {alone})
        return f"{others[0]} beside {alone}" if others else None
    unknown = sorted(keywords - _known(schema.get("type", ["object", "array"])))
    if unknown:
        return unknown[0]
    beside = next((name for name in ("pattern", "format") if name in keywords), None)
    others = sorted(keywords & OF_STRING - {beside}) if beside else []
    if others:
        return f"{others[0]} beside {beside}"
    if NESTED_SET.search(str(schema.get("pattern", ""))):
        return "sets of characters within others in pattern"
    given = _dict(schema.get("properties"))
    missing = [name for name in _list(schema.get("required")) if str(name) not in given]
    return f"required {missing[0]}, which is not among the properties," if missing else None


def _known(types: Any) -> set[str]:
    names = [types] if isinstance(types, str) else _list(types)
    return {keyword for name in names for keyword in OF_TYPE.get(str(name), ())}


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _cannot(reason: str) -> UnsupportedByBackend:
    return UnsupportedByBackend(
        "The engine of this model, which has continuousBatching, cannot follow this grammar"
        f" ({summarize(Exception(reason))}); simplify it."
    )
