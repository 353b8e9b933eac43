"""The length of the road of a request, which a reader has to follow."""

from __future__ import annotations

from pathlib import Path

from benchmarks.call_path import Workers


def test_a_classification_passes_few_files_functions_and_frames(tmp_path: Path) -> None:
    paths = Workers(tmp_path).call_paths()
    counts = paths["classification"].counts()
    # Metrics, which are reported from time to time, have five functions.
    most = {"files": 26, "functions": 95 + 5, "frames": 13}
    assert {name: counts[name] for name in most if counts[name] > most[name]} == {}
    objects = paths["classification"].objects
    of_request = ("HttpRequest", "ParsedRequest", "RequestState")
    assert [objects[name] for name in of_request] == [1, 1, 1]
    assert all(path.counts()["calls"] for path in paths.values())
    assert paths["chat completion"].counts()["files"] <= 36
