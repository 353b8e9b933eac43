"""The program that measures an archive."""

from __future__ import annotations

from pathlib import Path

import pytest

from hf_serve.scripts.archives.packing import pack
from hf_serve.scripts.benchmark.measure import NoRows, measure
from tests.sentences import refused
from tests.standins.checkpoints import write_config


@pytest.fixture
def archive(checkpoint: Path, tmp_path: Path) -> Path:
    path = write_config(tmp_path / "mine.yaml", model_name=str(checkpoint))
    return pack(path, archive_format="no-archive", export_path=tmp_path / "a", checked=False).path


def test_rows_are_measured_together_and_alone(archive: Path) -> None:
    rows = [("a good film", {}), (7, {}), ("a bad film", {"top_k": 2})]
    found = measure(str(archive), rows, 0.05)
    assert (found["batch"], found["refused"], found["fidelity"]) == (2, 1, None)
    assert 0 < found["p50_ms"] <= found["p99_ms"]
    assert found["rows_per_second"] > 0
    assert found["tokens_per_second"] is None
    assert found["size"] == sum(
        each.stat().st_size for each in archive.rglob("*") if each.is_file()
    )


def test_a_model_that_answers_no_row_says_why(archive: Path) -> None:
    with refused(NoRows, 2):
        measure(str(archive), [(7, {}), (8, {})], 0.05)
