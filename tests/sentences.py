"""Error sentences: tests assert facts, and tests/golden/sentences.json has the wording.

A test names the class of an error and the facts in its sentence: names, values, limits, keys::

    with refused(BadRequest, "top_k", 1001):
        model.parse(request)
    assert answer == {"code": 400, "type": "BadRequestException", "message": Sentence("top_k")}

The whole sentence must be among those of this test in the file, which `make golden` rewrites.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Self, TypeVar

import pytest

ROOT = Path(__file__).parents[1]
GOLDEN = Path(__file__).parent / "golden" / "sentences.json"

Raised = TypeVar("Raised", bound=BaseException)
# The sentences of each test, by file.
Wording = dict[str, dict[str, list[str]]]


class Sentence(str):
    """Equals a text that has the facts, and that is worded as the golden file says.

    A number is found with and without commas, a fact only as a whole word. The file leaves out
    what differs between two runs and two machines, such as measured numbers. As a text it is the
    sentences of the file, which pytest compares line by line where they are not equal.
    """

    __slots__ = ("facts",)
    __hash__ = None  # type: ignore[assignment]

    facts: tuple[object, ...]

    def __new__(cls, *facts: object) -> Self:
        """Return the sentence that the running test expects."""
        sentence = super().__new__(cls, "\n".join(_expected()))
        sentence.facts = facts
        return sentence

    def __eq__(self, text: object) -> bool:
        if not isinstance(text, str) or not all(_states(text, fact) for fact in self.facts):
            return False
        found = _normalize(text)
        _seen[_current_test()].add(found)
        return _rewrites or not _is_compared() or found in _expected()

    def __ne__(self, text: object) -> bool:
        return not self == text

    def __repr__(self) -> str:
        facts = ", ".join(map(repr, self.facts))
        return f"Sentence({facts}), in the wording that `make golden` writes"


@contextmanager
def refused(
    error: type[Raised] | tuple[type[Raised], ...], *facts: object
) -> Iterator[pytest.ExceptionInfo[Raised]]:
    """Assert that the block raises an error whose sentence has the facts."""
    with pytest.raises(error) as caught:
        yield caught
    assert str(caught.value) == Sentence(*facts)


def _states(text: str, fact: object) -> bool:
    forms = {str(fact), f"{fact:,}"} if type(fact) is int else {str(fact)}
    return any(re.search(rf"(?<!\w){re.escape(form)}(?!\w)", text) for form in forms)


_seen: defaultdict[str, set[str]] = defaultdict(set)
_rewrites = False
_BASES = rf"{re.escape(tempfile.gettempdir())}(?:/pytest-of-[^/]+/pytest-\d+)?(?:/popen-gw\d+)?"
_VOLATILE = (
    # First, as the checkout may be in the folder of temporary files.
    (re.compile(rf"{re.escape(str(ROOT))}/"), ""),
    (re.compile(rf"{_BASES}/[^/\s'\":;,)]+"), "TMP"),
    # The error of a library is cut to a length, to which the path contributes.
    (re.compile(r"(\([^()]*TMP[^\s'\"()]*)[^()]*\)"), r"\1…)"),
    # So is a traceback of TorchScript, to which the path of this file contributes.
    (re.compile(r'File "[^"]*", line \d+.*?(?=\)[;.])', re.DOTALL), "…"),
    (re.compile(r"(127\.0\.0\.1|localhost):\d+"), r"\1:PORT"),
    (re.compile(r"\b([Pp]ort) \d+"), r"\1 PORT"),
    (re.compile(r"\b(disk has) [\d,]+"), r"\1 N"),
    (re.compile(r"(?<![\w.])\d+(?:\.\d+)+(?!\w)"), "N.N"),  # measured numbers, and versions
)


def _normalize(text: str) -> str:
    for pattern, instead in _VOLATILE:
        text = pattern.sub(instead, text)
    return _writable(text)


def _writable(text: str) -> str:
    """Replace halves of surrogate pairs, which no file in UTF-8 has."""
    return text.encode(errors="backslashreplace").decode()


def _current_test() -> str:
    """Return the id of the running test, without the group that pytest-xdist appends."""
    running = os.environ["PYTEST_CURRENT_TEST"].rpartition(" (")[0]
    return _writable(re.sub(r"@[^\]]*$", "", running))


def _expected() -> list[str]:
    file, _, test = _current_test().partition("::")
    return _golden()["sentences"].get(file, {}).get(test, [])


@cache
def _golden() -> dict[str, Any]:
    return json.loads(GOLDEN.read_text(encoding="utf-8"))


@cache
def _is_compared() -> bool:
    """Return whether the libraries, whose errors are quoted, are those of the golden file."""
    return _golden()["transformers"] == version("transformers")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of `make golden`."""
    parser.addoption(
        "--rewrite-sentences",
        action="store_true",
        help="write the sentences of the tests that run to tests/golden/sentences.json",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Collect the sentences in one process, where they are rewritten."""
    global _rewrites
    if config.getoption("rewrite_sentences"):
        if config.getoption("numprocesses", None):
            raise pytest.UsageError("--rewrite-sentences needs one process; leave -n out")
        _rewrites = True
        config.pluginmanager.register(_Rewriting(is_whole="::" not in " ".join(config.args)))


class _Rewriting:
    """Replaces the sentences of the tests that pass, and drops those of tests that are gone."""

    def __init__(self, *, is_whole: bool) -> None:
        self.is_whole = is_whole
        self.files: set[str] = set()
        self.collected: set[str] = set()
        self.passed: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self.files = {item.nodeid.partition("::")[0] for item in items}
        items[:] = [item for item in items if _checks_sentences(getattr(item, "function", None))]
        self.collected = {_writable(item.nodeid) for item in items}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self.passed.add(_writable(report.nodeid))

    def pytest_sessionfinish(self) -> None:
        _golden.cache_clear()  # another run may have written it
        kept = {
            f"{file}::{test}": texts
            for file, tests in _golden()["sentences"].items()
            for test, texts in tests.items()
            if (ROOT / file).is_file()
            and (not self.is_whole or file not in self.files or f"{file}::{test}" in self.collected)
        }
        _write({**kept, **{test: sorted(_seen.get(test, ())) for test in self.passed}})


def _checks_sentences(function: Any, within: tuple[Any, ...] = ()) -> bool:
    """Return whether a test, or a function that it calls in its file, compares sentences."""
    if not isinstance(function, FunctionType) or function in within:
        return False
    called = [function.__globals__.get(name) for name in _names(function.__code__)]
    return any(
        each is refused
        or each is Sentence
        or (
            getattr(each, "__module__", None) == function.__module__
            and _checks_sentences(each, (*within, function))
        )
        for each in called
    )


def _names(code: CodeType) -> set[str]:
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    return set(code.co_names).union(*map(_names, inner))


def _write(sentences: dict[str, list[str]]) -> None:
    wording: Wording = {}
    for key in sorted(key for key, texts in sentences.items() if texts):
        file, _, test = key.partition("::")
        wording.setdefault(file, {})[test] = sentences[key]
    document = {"transformers": version("transformers"), "sentences": wording}
    text = json.dumps(document, indent=1, ensure_ascii=False)
    draft = GOLDEN.with_suffix(".draft")
    draft.write_text(f"{text}\n", encoding="utf-8")
    draft.replace(GOLDEN)
