"""`hf-serve` has a verb for each command of users."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from hf_serve.scripts.installation import ROOT, VERBS
from hf_serve.scripts.verbs import app

# The verbs with subcommands that have options of a folder.
OPTIONS_OF_GROUP = {"ray": ["start"], "kserve": ["start"]}
# Commands of those who change the kit.
OF_DEVELOPERS = {"default_modes", "lock_requirements", "serve_demo", "write_docs", "write_openapi"}


def test_each_command_has_a_verb() -> None:
    paths = (ROOT / "scripts").glob("*.py")
    commands = {path.stem for path in paths if "__name__ == " in path.read_text(encoding="utf-8")}
    assert commands - OF_DEVELOPERS - {"verbs"} == set(VERBS.values())


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_is_listed_with_a_sentence(verb: str) -> None:
    group = typer.main.get_command(app)
    command = group.get_command(typer.Context(group), verb)  # type: ignore[attr-defined]
    assert command.get_short_help_str(200)


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_a_verb_has_no_folder_of_this_machine(verb: str) -> None:
    """Readers of a page or an issue have other folders."""
    arguments = [verb, *OPTIONS_OF_GROUP.get(verb, ()), "--help"]
    shown = CliRunner().invoke(app, arguments, env={"COLUMNS": "400"}).output
    assert "Usage" in shown
    assert str(ROOT) not in shown and str(Path.cwd()) not in shown


def test_each_verb_has_a_row_in_the_documentation() -> None:
    page = (ROOT / "docs" / "getting-started.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `scripts/")]
    missing = {verb for verb in VERBS if not any(f"`{verb}`" in row for row in rows)}
    assert not missing
    assert not CliRunner().invoke(app, ["--help"]).exit_code
