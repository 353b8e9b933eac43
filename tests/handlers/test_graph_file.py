from __future__ import annotations

from pathlib import Path

import pytest

from handlers.errors import WrongCheckpoint
from handlers.graph_file import graph_file, loading


def test_a_file_of_another_name_is_found_by_its_pattern(tmp_path: Path) -> None:
    for name in ("b.pt", "a.pt", "a.pt2"):
        (tmp_path / name).touch()
    assert graph_file(tmp_path, "traced_model.pt", "*.pt") == tmp_path / "a.pt"
    with pytest.raises(WrongCheckpoint, match=r"traced_model\.pt: is not there; pack it"):
        graph_file(tmp_path, "traced_model.pt")


def test_what_its_reader_raises_is_told_in_one_sentence() -> None:
    with pytest.raises(WrongCheckpoint) as caught, loading("model.onnx"):
        raise KeyError("no\n node")
    assert str(caught.value).startswith("model.onnx: cannot be loaded (")
    assert "\n" not in str(caught.value)
