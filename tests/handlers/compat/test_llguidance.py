from __future__ import annotations

import subprocess
import sys

import pytest
from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from hf_serve.handlers.compat.llguidance import compiled_module, error_reason
from hf_serve.handlers.generation.grammar import TRIAL


@pytest.mark.parametrize(
    ("grammar", "reason"),
    [
        ('start: "a" b', 'unknown name: "b"'),
        ("start: A & B\nA: /a/\nB: /b/", "& is only supported"),
        ("start: A\nA: /a/ & /b/", "no text matches it"),
    ],
)
def test_a_message_has_neither_place_nor_source(grammar: str, reason: str) -> None:
    matcher = LLMatcher(LLTokenizer("byte"), grammar, log_level=0, limits=LLParserLimits())
    if not matcher.is_error() and not matcher.is_accepting():
        matcher.compute_bitmask()
    assert matcher.is_error() or matcher.is_stopped()
    found = error_reason(matcher.get_error())
    assert found.startswith(reason)
    assert "\n" not in found and "start:" not in found


def test_a_panic_is_a_grammar_that_is_too_complex() -> None:
    assert error_reason("panic: index out of bounds") == "it is too complex"


def test_the_compiled_module_is_imported_without_the_package() -> None:
    program = f"""
import runpy, sys
module = runpy.run_path({str(TRIAL)!r})["load"]({compiled_module()!r})
module.LLMatcher(module.LLTokenizer("byte"), "start: /a/", limits=module.LLParserLimits())
assert "llguidance" not in sys.modules and "importlib.metadata" not in sys.modules
"""
    subprocess.run([sys.executable, "-I", "-S", "-c", program], check=True)
