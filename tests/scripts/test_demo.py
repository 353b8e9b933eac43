"""The demo's command line, on a server that is made up."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import typer
from typer.testing import CliRunner

from hf_serve.handlers.config.handler_section import modes
from hf_serve.handlers.explainers import targets
from hf_serve.scripts import demo
from hf_serve.scripts.default_modes import default_modes
from tests.sentences import Sentence

EXPLANATION = {
    "sequence_ids": [0],
    "offsets": [[0, 3]],
    "importances": [0.5],
    "target": {"label": "POSITIVE"},
}


class FakeTorchServe:
    """Starts nothing; counts how often it is stopped."""

    stopped = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        self.inference_url = "http://demo"

    def start(self) -> FakeTorchServe:
        return self

    def stop(self) -> None:
        type(self).stopped += 1


Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the demo: `run(path=answer)` with answers that differ; returns the exit code and text."""
    choice = "save_mode: auto is this"
    archive = SimpleNamespace(path=tmp_path / "m.mar", size=1e6, choice=choice)
    monkeypatch.setattr(demo, "ensure", lambda _: None)
    monkeypatch.setattr(demo, "pack", lambda *_, **__: archive)
    monkeypatch.setattr(demo, "TorchServe", FakeTorchServe)
    monkeypatch.setattr(demo, "PAGES", tmp_path / "pages")
    monkeypatch.setattr(FakeTorchServe, "stopped", 0)

    def started(answers: dict[str, Any], *arguments: str) -> tuple[int, str]:
        def post(url: str, headers: dict[str, str], **_: Any) -> httpx.Response:
            path = url.removeprefix("http://demo")
            if path in answers:
                return answers[path]()
            if headers["Accept"] == "text/html":
                return httpx.Response(200, text="<!doctype html>")
            explains = path.startswith("/explanations/")
            answer = EXPLANATION if explains else {"label": "POSITIVE", "score": 0.9}
            return httpx.Response(200, json=answer)

        monkeypatch.setattr(httpx, "post", post)
        app = typer.Typer()
        app.command()(demo.main)
        done = CliRunner().invoke(app, arguments)
        assert FakeTorchServe.stopped == 1
        return done.exit_code, done.output

    return started


def unreachable() -> httpx.Response:
    raise httpx.ConnectError("away")


def test_every_path_is_shown_and_then_where_the_pages_are(run: Run, tmp_path: Path) -> None:
    code, shown = run({})
    assert code == 0
    assert "m.mar: 1.0 MB\n  save_mode: auto is this\n" in shown
    assert all(f"/predictions/{mode}" in shown for mode in default_modes())
    assert "/explanations/sequence_classification\nWhy the answer is POSITIVE:" in shown
    explained = filter(targets.get, default_modes())
    pages = [tmp_path / "pages" / f"{mode}.html" for mode in explained]
    assert [line.strip() for line in shown.splitlines()[-len(pages) :]] == list(map(str, pages))
    assert all(page.read_text() == "<!doctype html>" for page in pages)


def test_named_modes_are_shown_and_explained_alone(run: Run, tmp_path: Path) -> None:
    code, shown = run({}, "--mode", "token_classification", "--mode", "text_generation")
    assert code == 0
    for mode in ("token_classification", "text_generation"):
        assert f"/predictions/{mode}" in shown
        assert f"/explanations/{mode}\nWhy the answer is POSITIVE:" in shown
        assert str(tmp_path / "pages" / f"{mode}.html") in shown
    assert "sequence_classification" not in shown


def test_an_unknown_mode_is_one_sentence_with_the_names() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hf_serve.scripts.demo", "--mode", "xyz"],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == Sentence("xyz", *modes())


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda: httpx.Response(400, json={"code": 400, "message": "too long"}), "400 too long"),
        (lambda: httpx.Response(502, text="bad gateway"), "502 bad gateway"),
        (unreachable, "503 no answer (ConnectError)"),
    ],
)
@pytest.mark.parametrize("kind", ["predictions", "explanations"])
def test_a_request_that_fails_is_shown_and_ends_with_1(
    run: Run, kind: str, answer: Callable[[], httpx.Response], message: str
) -> None:
    path = f"/{kind}/sequence_classification"
    code, shown = run({path: answer})
    assert code == 1
    assert message in " ".join(shown.replace("│", " ").split())
    assert shown.splitlines()[-1] == f"Failed: {path}"
