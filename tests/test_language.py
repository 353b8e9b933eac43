"""Names, comments and docstrings use the words of docs/architecture.md#glossary.

`LEFT` has how often a word is still found. Its numbers may only become smaller: lower one with
the change that makes it possible. A word without a number is not allowed.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("handlers", "hosts", "scripts", "demo_models")
FILES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))

# Names of modules and packages, and what they are called.
MODULES = {
    "exam": "evaluate",
    "kit": "a subject",
    "lessons": "trainers",
    "parity": "fidelity",
    "places": "paths",
    "runtime": "a subject",
    "schemas": "types",
    "telephone": "synthetic_audio",
    "waves": "chunks",
}
# Names of classes, functions, arguments, variables and attributes, and what they are called.
NAMES = {
    "ALONE": "a noun",
    "Continuation": "StopTracker",
    "EngineModel": "GenerationBackend",
    "EngineProcess": "GenerationBackend",
    "Exchange": "ParsedRequest",
    "GeneratedText": "GenerationState",
    "Job": "RequestState",
    "LackingInEngine": "UnsupportedByBackend",
    "Layout": "PromptLayout",
    "OF_ITEM": "ITEM_ERRORS",
    "OF_SAMPLING": "SAMPLING_PARAMETERS",
    "OutOfTime": "DeadlineExceeded",
    "PLACE": "a noun",
    "Parsed": "ParsedRequest",
    "Query": "the input of the task",
    "ReducedModel": "ModelWithPooling",
    "StaticGroups": "BatchScheduler",
    "TextEngine": "GenerationBackend",
    "TextReduction": "PoolingHead",
    "WHOLE": "a noun",
    "alone": "is_batch_item",
    "assists": "supports_assistant",
    "comparable": "decision_scores",
    "compared_outputs": "outputs_for_comparison",
    "draws": "generates_images",
    "dummy": "probe, warm-up or example",
    "fills_limit": "use_remaining_context",
    "made_up": "probe, warm-up or example",
    "owners": "http_request_ids",
    "packs": "supports_packing",
    "parity": "fidelity",
    "waves": "chunks",
    "with_reference": "reference_rows",
}
# Phrases of comments and docstrings, and what to write.
PHRASES = {
    r"\b(that|those) of\b": "repeat the noun",
    r"\bbeside\b": "next to, with, or in addition to",
    r"\bso (many|much)\b": "name the number, or leave it out",
    r"\bof (its|their|one's) own\b": "own, separate",
    r"\bmade[- ]up\b": "probe, warm-up or example",
    r"\bdumm(y|ies)\b": "probe, warm-up or example",
    r"\btext engine": "generation back end",
    r"\bparity\b": "fidelity",
    r"\bout of time\b": "after the deadline",
}
LEFT: dict[str, int] = {
    "GeneratedText": 1,
    "PLACE": 3,
    r"\b(that|those) of\b": 33,
    r"\bbeside\b": 29,
    r"\bmade[- ]up\b": 1,
    r"\bof (its|their|one's) own\b": 3,
    r"\bso (many|much)\b": 1,
    "alone": 11,
    "owners": 3,
    "packs": 2,
    "schemas.py": 1,
}


def names_of(path: Path) -> Iterator[str]:
    """Yield the names that a file defines."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def prose_of(path: Path) -> Iterator[str]:
    """Yield the comments and docstrings of a file, with single spaces."""
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, kinds) and (found := ast.get_docstring(node)):
            yield " ".join(found.split())
    comments, last = list[str](), -2
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            words = token.string.lstrip("# ")
            if token.start[0] == last + 1:
                comments[-1] += f" {words}"
            else:
                comments.append(words)
            last = token.start[0]
    yield from comments


def check(word: str, found: Counter[str], instead: str) -> None:
    listed = ", ".join(f"{path} ({count})" for path, count in found.most_common())
    assert found.total() <= LEFT.get(word, 0), f"{word}: write {instead}, in {listed}"


@pytest.fixture(scope="module")
def names() -> dict[str, Counter[str]]:
    """How often each file defines each name."""
    found = {name: Counter[str]() for name in NAMES}
    for path in FILES:
        for name in names_of(path):
            if (plain := name.strip("_")) in found:
                found[plain][str(path.relative_to(ROOT))] += 1
    return found


@pytest.fixture(scope="module")
def phrases() -> dict[str, Counter[str]]:
    """How often each file has each phrase."""
    found = {phrase: Counter[str]() for phrase in PHRASES}
    for path in FILES:
        for text in prose_of(path):
            for phrase in PHRASES:
                if count := len(re.findall(phrase, text, re.IGNORECASE)):
                    found[phrase][str(path.relative_to(ROOT))] += count
    return found


@pytest.mark.parametrize("name", MODULES)
def test_a_module_has_the_name_of_its_subject(name: str) -> None:
    modules = [part for path in FILES for part in path.relative_to(ROOT).with_suffix("").parts]
    assert modules.count(name) + modules.count(f"_{name}") <= LEFT.get(f"{name}.py", 0)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_is_a_word_of_the_glossary(name: str, names: dict[str, Counter[str]]) -> None:
    check(name, names[name], NAMES[name])


@pytest.mark.parametrize("phrase", PHRASES)
def test_a_sentence_is_plain(phrase: str, phrases: dict[str, Counter[str]]) -> None:
    check(phrase, phrases[phrase], PHRASES[phrase])
