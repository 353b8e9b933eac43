from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from hf_serve.handlers.errors import BadRequest, Overloaded
from hf_serve.handlers.generation.grammar import CompileCache, GrammarCompiler
from tests.sentences import refused
from tests.tiny_tokenizers import write_gpt2

WAIT = 20.0
HOSTILE, KNOWN, NEW = "start: /hostile/", "start: /known/", "start: /new/"
Trial = subprocess.CompletedProcess[bytes]


class Trials:
    """Trials that pass, except those of a hostile grammar, which run until they are released."""

    def __init__(self) -> None:
        self.tried: list[str] = []
        self.hostile_runs, self.release = threading.Event(), threading.Event()

    def run(self, command: Any, *, input: bytes, timeout: float, **_: Any) -> Trial:  # noqa: A002
        (lark,) = json.loads(input)
        self.tried.append(lark)
        if lark != HOSTILE:
            return Trial(command, 0, b"1\n")
        self.hostile_runs.set()
        assert self.release.wait(WAIT)
        raise subprocess.TimeoutExpired(command, timeout)


@pytest.fixture
def trials(monkeypatch: pytest.MonkeyPatch) -> Trials:
    trials = Trials()
    monkeypatch.setattr(subprocess, "run", trials.run)
    return trials


@pytest.fixture
def compiler(tmp_path: Path) -> GrammarCompiler:
    write_gpt2(tmp_path)
    tokenizer: Any = AutoTokenizer.from_pretrained(tmp_path)
    return GrammarCompiler(tokenizer, len(tokenizer), frozenset([tokenizer.eos_token_id]))


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as threads:
        yield threads


def test_other_grammars_do_not_wait_for_one_that_takes_long(
    trials: Trials, compiler: GrammarCompiler, threads: ThreadPoolExecutor
) -> None:
    known = compiler.compile(KNOWN)
    hostile = threads.submit(compiler.compile, HOSTILE)
    try:
        assert trials.hostile_runs.wait(WAIT)
        assert threads.submit(compiler.compile, KNOWN).result(WAIT) is known
        assert threads.submit(compiler.compile, NEW).result(WAIT)
        assert not hostile.done()
    finally:
        trials.release.set()
    with pytest.raises(Overloaded):
        hostile.result(WAIT)


def test_a_trial_that_runs_out_of_time_says_nothing_about_the_grammar(
    trials: Trials, compiler: GrammarCompiler
) -> None:
    """The machine was busy: the next request has the grammar tried again."""
    trials.release.set()
    for _ in range(2):
        with refused(Overloaded):
            compiler.compile(HOSTILE)
    assert trials.tried == [HOSTILE] * 2


def test_a_trial_that_exceeds_its_cpu_time_is_the_last_of_its_grammar(
    monkeypatch: pytest.MonkeyPatch, compiler: GrammarCompiler
) -> None:
    tried = []

    def killed(command: Any, **_: Any) -> Trial:
        tried.append(command)
        return Trial(command, -9, b"")

    monkeypatch.setattr(subprocess, "run", killed)
    for _ in range(2):
        with refused(BadRequest):
            compiler.compile(HOSTILE)
    assert len(tried) == 1


class Compiling:
    """A compiler whose grammars wait until they are released, or fail with an error."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error, self.begun = error, threading.Semaphore(0)
        self.release = threading.Event()
        self.compiled: list[str] = []

    def __call__(self, text: str) -> str:
        self.compiled.append(text)
        self.begun.release()
        assert self.release.wait(WAIT)
        if self.error:
            raise self.error
        return text.upper()


def test_threads_with_the_same_grammar_have_it_compiled_once(threads: ThreadPoolExecutor) -> None:
    compiling = Compiling()
    cache = CompileCache(compiling, size=2, at_once=2, seconds=WAIT)
    found = [threads.submit(cache.get, "a") for _ in range(4)]
    assert compiling.begun.acquire(timeout=WAIT)
    compiling.release.set()
    assert [each.result(WAIT) for each in found] == ["A"] * 4
    assert compiling.compiled == ["a"]


def test_a_grammar_that_waits_too_long_for_others_is_refused_and_not_kept(
    threads: ThreadPoolExecutor,
) -> None:
    compiling = Compiling()
    cache = CompileCache(compiling, size=2, at_once=1, seconds=0.0)
    first = threads.submit(cache.get, "a")
    assert compiling.begun.acquire(timeout=WAIT)
    with refused(Overloaded):
        cache.get("b")
    compiling.release.set()
    assert first.result(WAIT) == "A"
    assert cache.get("b") == "B"


def test_errors_displace_no_results_and_those_in_use_stay() -> None:
    wrong = {f"wrong {number}" for number in range(5)}
    compiled: list[str] = []

    def compile_grammar(text: str) -> str:
        compiled.append(text)
        if text in wrong:
            raise BadRequest(text)
        return text

    cache = CompileCache(compile_grammar, size=2, at_once=1, seconds=WAIT)
    for text in ("in use", *wrong, "once", "in use", "twice", "in use"):
        if text in wrong:
            with pytest.raises(BadRequest):
                cache.get(text)
        else:
            cache.get(text)
    assert compiled.count("in use") == 1


def test_each_caller_has_an_error_of_its_own(threads: ThreadPoolExecutor) -> None:
    """One that is raised gets the frames of its caller, whose variables are bodies."""
    compiling = Compiling(BadRequest("wrong"))
    cache = CompileCache(compiling, size=2, at_once=1, seconds=WAIT)
    found = [threads.submit(cache.get, "a") for _ in range(3)]
    compiling.release.set()
    raised = [each.exception(WAIT) for each in found]
    for _ in range(2):
        with pytest.raises(BadRequest) as caught:
            cache.get("a")
        raised.append(caught.value)
    assert {str(each) for each in raised} == {"wrong"}
    assert len({id(each) for each in raised}) == len(raised)
    assert compiling.compiled == ["a"]
