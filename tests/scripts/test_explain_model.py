"""`explain_model.py`: an explanation in the terminal, or as a page."""

from __future__ import annotations

from pathlib import Path

import typer
from typer.testing import CliRunner

from hf_serve.scripts.explain_model import main, read
from tests.sentences import Sentence

APP = typer.Typer()
APP.command()(main)


def test_words_and_the_label_are_shown_and_the_mode_is_found(checkpoint: Path) -> None:
    done = CliRunner().invoke(APP, [str(checkpoint), "Ada sings."])
    assert done.exit_code == 0, done.output
    assert "Why the answer is " in done.output
    assert "For it" in done.output


def test_a_page_is_written(checkpoint: Path, tmp_path: Path) -> None:
    options = ("--mode", "sequence_classification", "--method", "feature_ablation")
    page = tmp_path / "page.html"
    done = CliRunner().invoke(APP, [str(checkpoint), "Ada sings.", *options, "--page", str(page)])
    assert done.exit_code == 0, done.output
    assert "<html" in page.read_text(encoding="utf-8")


def test_a_yaml_is_refused_with_the_command_that_packs_it(tmp_path: Path) -> None:
    config = tmp_path / "sentiment.yaml"
    config.touch()
    done = CliRunner().invoke(APP, [str(config), "Ada sings."])
    assert (done.exit_code, done.output.strip()) == (
        1,
        Sentence("sentiment.yaml", "create_archive.py"),
    )


def test_a_wrong_method_is_one_sentence(checkpoint: Path) -> None:
    options = ("--mode", "sequence_classification", "--method", "guess")
    done = CliRunner().invoke(APP, [str(checkpoint), "Ada sings.", *options])
    assert done.exit_code == 1
    assert "guess" in done.output
    assert "Traceback" not in done.output


def test_an_argument_is_an_object_a_file_or_a_text(tmp_path: Path) -> None:
    image = tmp_path / "image.png"
    image.touch()
    assert read('{"question": "Who?"}') == {"question": "Who?"}
    assert read(str(image)) == image
    assert read("{braces} are fine") == "{braces} are fine"
    assert read("x" * 5000) == "x" * 5000
