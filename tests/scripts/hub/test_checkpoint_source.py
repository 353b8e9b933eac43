from __future__ import annotations

from pathlib import Path

import pytest

from scripts.hub.checkpoint_source import Source

COMMIT = "564e9b582944a57a3e586bbb98fd6f0a4118db7f"
SOURCE = Source(model_name="org/name", revision="main", commit=COMMIT, files={"config.json": 2})


def test_a_source_round_trips_through_its_file(tmp_path: Path) -> None:
    SOURCE.write(tmp_path)
    assert Source.read(tmp_path) == SOURCE


@pytest.mark.parametrize("text", [None, "", "{}", "[]"])
def test_a_missing_or_invalid_source_file_is_read_as_none(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / ".source.json").write_text(text)
    assert Source.read(tmp_path) is None


@pytest.mark.parametrize(
    ("model_name", "revision", "matches"),
    [
        ("org/name", "main", True),
        ("org/name", COMMIT, True),
        ("org/name", COMMIT[:7], True),
        ("org/name", None, False),
        ("org/name", "v2", False),
        ("org/other", "main", False),
    ],
)
def test_a_source_matches_its_model_and_revision(
    model_name: str, revision: str | None, matches: bool
) -> None:
    assert SOURCE.matches(model_name, revision) is matches


def test_a_missing_or_truncated_file_makes_it_incomplete(tmp_path: Path) -> None:
    assert not SOURCE.is_complete_in(tmp_path)
    (tmp_path / "config.json").write_text("{")
    assert not SOURCE.is_complete_in(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    assert SOURCE.is_complete_in(tmp_path)
