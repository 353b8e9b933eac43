"""The programs of the page on retrieval, in its order, against a real TorchServe."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hf_serve.scripts.installation import ROOT
from hf_serve.scripts.serving.server import Server
from hf_serve.scripts.serving.torchserve import TorchServe
from tests.docs.pages import DOCS, Block, blocks_of
from tests.e2e.clients import PYTHON, SECONDS, UNSET

pytestmark = pytest.mark.nightly

BLOCKS = list(blocks_of(DOCS / "retrieval.md"))
PROGRAMS = {block.title: block for block in BLOCKS if block.language == "python"}
CURLS = [block for block in BLOCKS if block.text.startswith("curl ")]
PAGES = [block for block in CURLS if "text/html" in block.text]
# The kit's own environment makes the passages; those of a client do the rest.
PYTHONS = {"passages.py": Path(sys.executable)}


@pytest.fixture(scope="module")
def server(
    pack_demo: Callable[[str, Path], None], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    store = tmp_path_factory.mktemp("retrieval")
    for mode in ("sentence_embedding", "sentence_ranking"):
        pack_demo(mode, store)
    workdir = tmp_path_factory.mktemp("torchserve")
    with TorchServe(model_store=store, workdir=workdir, timeout=480) as server:
        yield server


@pytest.fixture(scope="module")
def folder(server: Server, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the programs of the page and the index that they made."""
    folder = tmp_path_factory.mktemp("programs")
    for title, block in PROGRAMS.items():
        (folder / title).write_text(addressed(block.text, server), encoding="utf-8")
    run(folder, "passages.py")
    assert run(folder, "index.py") == "1000 passages, 384 dimensions\n"
    return folder


def test_a_search_prints_what_the_page_shows(folder: Path) -> None:
    (command,) = (block for block in BLOCKS if block.text.startswith("python search.py"))
    (shown,) = (block for block in BLOCKS if block.after is command)
    assert texts(run(folder, *shlex.split(command.text)[1:])) == texts(shown.text)


@pytest.mark.parametrize("block", [each for each in CURLS if each not in PAGES], ids=str)
def test_an_explanation_has_the_words_that_the_page_shows(block: Block, server: Server) -> None:
    (shown,) = (each for each in BLOCKS if each.after is block)
    command = addressed(block.text, server)
    done = subprocess.run(["bash", "-c", command], capture_output=True, check=True, timeout=SECONDS)
    answer, expected = json.loads(done.stdout), json.loads(shown.text)
    assert answer["words"] == expected["words"]
    assert answer["importances"] == pytest.approx(expected["importances"], abs=0.1)


@pytest.mark.parametrize("block", PAGES, ids=str)
def test_an_explanation_is_a_page(block: Block, server: Server, tmp_path: Path) -> None:
    command = ["bash", "-c", addressed(block.text, server)]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=True, timeout=SECONDS)
    page = (tmp_path / "explanation.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert "Osborne" in page


def texts(output: str) -> list[str]:
    """Return the lines without the scores, whose last digits depend on the processor."""
    return [line.partition("  ")[2] for line in output.strip().splitlines()]


def addressed(text: str, server: Server) -> str:
    return text.replace("127.0.0.1:8080", f"127.0.0.1:{server.ports.inference}")


def run(folder: Path, program: str, *arguments: str) -> str:
    kept = {name: value for name, value in os.environ.items() if name not in UNSET}
    done = subprocess.run(
        [PYTHONS.get(program, PYTHON), program, *arguments],
        cwd=folder,
        env={**kept, "NO_PROXY": "127.0.0.1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
